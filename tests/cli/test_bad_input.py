"""Bad input gets one clear line with the remedy, exit code 1, and leaves nothing behind."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Command, Result
from mlflow.tracking import MlflowClient
from onnx import helper
from PIL import Image
from refused_models import branched, detector, half, named_classes

from seqto.tracking.stores import Store


def complaint(result: Result) -> str:
    """Return the one line of a command that failed as it should."""
    assert result.code == 1
    assert "Traceback" not in result.out + result.err
    (line,) = result.err.strip().splitlines()
    return line.removeprefix("seqto: error: ")


# One of each kind; tests/config/test_complaints.py has the words of many more.
KINDS = {
    "key": (["modl=digits"], "did you mean 'model'"),
    "choice": (["model=digit"], "did you mean 'digits'"),
    "rule": (["recommend=papers"], "recommend='papers' has to be 'tested' or 'paper'"),
    "value": (["study.top_k=0"], "study.top_k=0 has to be greater than"),
    "value of a part": (["search=ladder", "search.step=abc"], "has to be a valid integer"),
    "argument": (["++device.repeat=3"], "device does not take repeat=3"),
    "missing": (["model=local"], "model.path is not given"),
    "shape": (["precisions=int4"], "precisions=[int8,float32]"),
    "word": (["mlflow.db"], "model=local model.path=mlflow.db"),
    "syntax": (["candidate.excluded=[a"], "candidate.excluded=[a"),
    "option": (["--foo"], "unrecognized arguments: --foo. See seqto --help"),
    "value of an option": (["--cfg", "jobs"], "'jobs'"),
    "preparation": (["quantization.exclude=[dense]"], "did you mean"),
    "pattern": (["quantization.exclude=[/blocks/0/*,op:Gemm,first,last]"], "'/blocks/0/*'"),
}


@pytest.mark.parametrize("mode", [[], ["-m"]], ids=["single", "study"])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_overrides(seqto: Command, tmp_path: Path, kind: str, mode: list[str]) -> None:
    arguments, words = KINDS[kind]
    assert words in complaint(seqto(*arguments, *mode))
    assert [each.name for each in tmp_path.iterdir()] == ["mlflow.db"], "nothing is left behind"


def test_what_others_left_is_kept(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "multirun" / "earlier").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    complaint(seqto("model=local", "-m"))
    complaint(seqto("model=local", "hydra.sweep.dir=mine", "-m"))
    complaint(seqto("model=local", "hydra.run.dir=mine"))
    complaint(seqto("model=local", "hydra.run.dir=."))
    assert (tmp_path / "multirun" / "earlier").exists()
    assert (tmp_path / "mine" / "notes.txt").exists()
    assert (tmp_path / "mlflow.db").exists()


def test_file_that_is_no_model(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.onnx").write_text("this is no model")
    line = complaint(seqto("model=local", "model.path=notes.onnx", "-m"))
    assert "notes.onnx is no ONNX model" in line


def test_model_without_a_quantizable_layer(seqto: Command, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["image"], ["out"])],
        "relu",
        [value("image", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
        [value("out", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "relu.onnx")
    line = complaint(seqto("model=local", "model.path=relu.onnx", "-m"))
    assert "has no layer to quantize" in line and "it has Relu" in line


REFUSED = {
    "detector": (detector, "choose the scores that they are made from with"),
    "text": (named_classes, "'label' is made of strings"),
    "float16": (half, "float16 already. Export it in float32"),
    "branches": (branched, "inside the branches of If"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_model_that_cannot_be_studied(seqto: Command, tmp_path: Path, kind: str) -> None:
    make, words = REFUSED[kind]
    (tmp_path / "model.onnx").write_bytes(make().to_bytes())
    result = seqto("model=local", "model.path=model.onnx", "dataset=random", "-m")
    # The noise is announced in a line before it.
    line = complaint(replace(result, err=result.err.strip().splitlines()[-1]))
    assert words in line and ("Export" in line or "task=" in line)
    assert "unexpected" not in result.err


def test_images_for_a_model_of_another_shape(seqto: Command, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    for name in ("one.png", "two.png"):
        pixels[0] = ord(name[0])
        Image.fromarray(pixels).save(tmp_path / name)
    sizes = ["dataset.calibration_size=1", "dataset.evaluation_size=1"]
    crop = "preprocess.crop=224"
    line = complaint(seqto("dataset=images", "dataset.path=.", crop, *sizes, "-m"))
    assert "8" in line and "224" in line and "preprocess" in line


def test_too_few_images(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    line = complaint(seqto("dataset=images", "dataset.path=photos", "preprocess.crop=8", "-m"))
    assert "has no images" in line
    Image.new("RGB", (20, 20)).save(tmp_path / "photos" / "one.png")
    line = complaint(seqto("dataset=images", "dataset.path=photos", "preprocess.crop=8", "-m"))
    assert "photos has 1 image, too few" in line and "give 20 or more" in line


def test_unreadable_image_is_named(seqto: Command, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_text(f"{name} is no image")
    sizes = ["dataset.calibration_size=1", "dataset.evaluation_size=1"]
    line = complaint(seqto("dataset=images", "dataset.path=.", "preprocess.crop=8", *sizes, "-m"))
    assert "a.png" in line or "b.png" in line


def test_unknown_layer_gets_the_nearest_names(seqto: Command) -> None:
    line = complaint(seqto("candidate.excluded=[dense]"))
    assert "'dense'" in line and "did you mean '/dense/Gemm'" in line


def test_choices_of_a_candidate_exclude_each_other(seqto: Command) -> None:
    line = complaint(seqto("candidate.excluded=[]", "candidate.top=1"))
    assert "candidate.excluded and candidate.top exclude each other" in line
    assert "a list" in complaint(seqto("candidate.excluded=conv"))
    assert "from 0 to" in complaint(seqto("candidate.top=1000"))
    assert "-m runs a study" in complaint(seqto("candidate.top=1", "-m"))


def test_precision_that_the_quantizer_does_not_offer(seqto: Command, tmp_path: Path) -> None:
    line = complaint(seqto("candidate.precisions={float15:[/dense/Gemm]}"))
    assert "'/dense/Gemm' in 'float15' (did you mean 'float16'" in line
    assert "quantization=static does not offer" in line
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiments = [each.experiment_id for each in client.search_experiments()]
    assert not client.search_runs(experiments), "nothing has run"


def test_run_that_is_not_there(seqto: Command) -> None:
    assert "no run 'abc'" in complaint(seqto("candidate.from_run=abc"))


def test_objectives_that_nothing_measures(seqto: Command) -> None:
    line = complaint(seqto("objectives=[accuracy_loss,size]", "-m"))
    assert "'size'" in line and "size_bytes" in line
    assert "at least two" in complaint(seqto("objectives=[size_bytes]", "-m"))


@pytest.mark.parametrize("mode", [[], ["-m"]], ids=["single", "study"])
def test_tracking_server_that_does_not_answer(
    seqto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: list[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    # The model is not even read, which would be refused.
    (tmp_path / "empty.onnx").touch()
    words = ["tracking.uri=http://127.0.0.1:9", "model=local", "model.path=empty.onnx"]
    result = seqto(*words, *mode)
    line = complaint(result)
    assert "http://127.0.0.1:9 does not answer" in line and "tracking.uri" in line
    assert "Connection refused" in line and len(line) < 200
    assert "Preparing" not in result.out


def test_tracking_server_of_a_grid_is_asked_once(
    seqto: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    asked, check = [], Store.check_answers
    monkeypatch.setattr(Store, "check_answers", lambda store: (asked.append(store), check(store)))
    result = seqto("tracking.uri=http://127.0.0.1:9", "quantization=static,dynamic", "-m")
    assert len(asked) == 1 and result.err.count("does not answer") == 2
    assert "2 of 2 studies failed" in result.err


def test_nothing_is_recorded_of_a_study_that_could_not_begin(
    seqto: Command, tmp_path: Path
) -> None:
    (tmp_path / "mlflow.db").unlink()
    assert seqto("quantization.exclude=[dense]", "-m").code == 1
    assert not (tmp_path / "mlflow.db").exists()


def test_debug_shows_the_traceback(seqto: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTO_DEBUG", "1")
    result = seqto("model=local", "model.path=none.onnx", "-m")
    assert result.code == 1
    assert "Traceback" in result.err and "none.onnx" in result.err


@pytest.mark.parametrize("mode", [[], ["-m"]], ids=["single", "study"])
def test_folder_that_cannot_be_written_is_named(
    seqto: Command, tmp_path: Path, mode: list[str]
) -> None:
    (tmp_path / "file").touch()
    where = "hydra.sweep.dir" if mode else "hydra.run.dir"
    line = complaint(seqto(f"{where}={tmp_path}/file/results", *mode))
    assert "file/results" in line and "unexpected" not in line
    assert "can be written" in line or "give another one" in line


def test_cache_that_is_a_file_is_named(
    seqto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "cache"))
    line = complaint(seqto("-m"))
    assert "SEQTO_CACHE" in line and "unexpected" not in line
