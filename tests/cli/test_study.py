"""The first command of the README, and what it leaves."""

import html
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import onnx
import onnxruntime
import pytest
from commands import Command, Result, command_in
from mlflow.tracking import MlflowClient
from PIL import Image

from seqto.cli.study_command import command_line
from seqto.datasets.digits import DigitsDataset
from seqto.graph.load import input_specs
from seqto.models.embedded import EmbeddedModel
from seqto.types import sha256

# A ladder of few rungs, so that most tests are quick.
SHORT = [
    "search=ladder",
    "sensitivity=paper",
    "search.step=8",
    "dataset.evaluation_size=200",
    "device.repeats=3",
]


@dataclass(frozen=True)
class Studied:
    """A study that several tests look at, in a folder in which they may go on."""

    folder: Path
    result: Result
    loads: int
    """How often its model was loaded."""

    @property
    def client(self) -> MlflowClient:
        return client(self.folder)


@pytest.fixture(scope="module")
def studied(cache: Path, migrated_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    folder, loads, load = tmp_path_factory.mktemp("studied"), [], EmbeddedModel.load
    with pytest.MonkeyPatch.context() as patch, command_in(folder, cache, migrated_store) as seqto:
        patch.setattr(EmbeddedModel, "load", lambda self: loads.append(1) or load(self))
        result = seqto(*SHORT, "-m")
    assert result.code == 0, result.err
    return Studied(folder, result, len(loads))


@pytest.fixture
def go_on(studied: Studied, cache: Path, migrated_store: Path) -> Iterator[Command]:
    """The command line in the folder of the study."""
    with command_in(studied.folder, cache, migrated_store) as command:
        yield command


def last_line(result: Result, label: str) -> str:
    lines = [line for line in result.out.splitlines() if line.startswith(f"{label}:")]
    return lines[-1].partition(":")[2].strip()


def run_id(result: Result) -> str:
    return last_line(result, "open").rpartition("/")[2].partition("?")[0]


def client(folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


@pytest.mark.slow
def test_default_study_has_an_honest_trade_off(seqto: Command, tmp_path: Path) -> None:
    result = seqto("-m")
    assert result.code == 0, result.err
    (report,) = tmp_path.glob("multirun/*/*/report.json")
    content = json.loads(report.read_text())
    candidates = content["candidates"]
    assert 3 <= len(candidates) <= 8, "screened before they are evaluated in full"
    full, *others = candidates
    assert set(full["precisions"].values()) == {"int8"} and full["metrics"]["accuracy_loss"] > 0
    assert all(each["excluded_count"] < len(content["sensitivity"]) for each in others)
    assert sum(each["pareto"] for each in candidates) >= 3
    # Smaller than int8, and no worse.
    best = candidates[content["recommended"]["accurate"]]["metrics"]
    assert best["size_ratio"] < 0.5 * full["metrics"]["size_ratio"]
    assert best["accuracy_loss"] <= full["metrics"]["accuracy_loss"]
    assert set(content["recommended"]) == {"balanced", "accurate", "small"}
    assert 0 < content["hypervolume"] < 1


def test_study_prints_where_to_look(studied: Studied) -> None:
    result = studied.result
    assert "balanced" in result.out and "float" in result.out
    with Image.open(studied.folder / last_line(result, "picture")) as picture:
        assert picture.width > 500
    page = r"http://127.0.0.1:5000/#/experiments/1/runs/\w{32}\?workflowType=machine_learning"
    assert re.fullmatch(page, last_line(result, "open"))
    assert "mlflow ui --backend-store-uri sqlite:///" in last_line(result, "serve")
    assert "\r" not in result.out and "\x1b" not in result.out, "quiet when not a terminal"


def test_without_a_terminal_steps_are_told_line_by_line(studied: Studied) -> None:
    lines = studied.result.out.splitlines()
    assert any(re.fullmatch(r"running the float model \(200\): \d+\.\d s", line) for line in lines)
    assert any(re.fullmatch(r"calibrating \(100\): \d+\.\d s", line) for line in lines)
    measured = [line for line in lines if line.startswith("measuring ")]
    assert measured[-1].startswith(f"measuring {len(measured)}/{len(measured)}: #")


def test_the_answer_is_a_file(studied: Studied) -> None:
    path = studied.folder / last_line(studied.result, "file")
    assert path.name == "balanced.onnx"
    (report,) = studied.folder.glob("multirun/*/*/report.json")
    content = json.loads(report.read_text())
    by_index = {each["index"]: each for each in content["candidates"]}
    assert content["recommended"], "there is something to look at"
    for alias, index in content["recommended"].items():
        saved = path.with_name(f"{alias}.onnx")
        candidate = by_index[index]
        assert saved.stat().st_size == candidate["metrics"]["size_bytes"]
        session = candidate["session"]
        options = json.dumps(session, sort_keys=True).encode() if session else b""
        assert sha256(saved.read_bytes() + options) == candidate["model_sha256"]


@pytest.mark.parametrize(("kind", "ending"), [("mlflow", "logits"), ("onnxruntime", "array")])
def test_what_the_page_says_to_type_predicts(
    studied: Studied,
    kind: str,
    ending: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (page,) = studied.folder.glob("multirun/*/*/report.html")
    (code, *_) = re.findall(rf'<pre class="{kind}">(.*?)</pre>', page.read_text(), re.DOTALL)
    monkeypatch.chdir(page.parent if kind == "onnxruntime" else studied.folder)
    mlflow.set_tracking_uri(f"sqlite:///{studied.folder / 'mlflow.db'}")
    try:
        exec(html.unescape(code), {})
    finally:
        mlflow.set_tracking_uri(None)
    assert ending in capsys.readouterr().out


def test_study_leaves_what_the_design_says(studied: Studied) -> None:
    study = studied.client.get_run(run_id(studied.result))
    assert study.info.status == "FINISHED"
    assert study.data.tags["seqto.kind"] == "study"
    assert study.data.tags["seqto.model"] == "digits"
    assert study.data.params["quantization.per_channel"] == "True"
    assert {"hypervolume", "candidates", "front_size", "failed", "wall_seconds"} <= set(
        study.data.metrics
    )
    artifacts = {each.path for each in studied.client.list_artifacts(study.info.run_id)}
    assert artifacts >= {
        "config.yaml",
        "sensitivity.json",
        "sensitivity.png",
        "objectives.png",
        "front.png",
        "report.json",
    }
    children = studied.client.search_runs(
        ["1"], f"tags.`mlflow.parentRunId` = '{study.info.run_id}'"
    )
    assert len(children) == study.data.metrics["candidates"]
    on_front = [child for child in children if child.data.tags["seqto.pareto"] == "true"]
    assert len(on_front) == study.data.metrics["front_size"]
    assert all("seqto.model_uri" in child.data.tags for child in on_front)
    command = f"seqto {shlex.join([*SHORT, '-m'])}"
    assert study.data.tags["seqto.command"] == command
    note = study.data.tags["mlflow.note.content"]
    assert f"\n{command}\n" in note
    assert all(f"/runs/{child.info.run_id}?" in note for child in on_front)


def test_what_loading_takes_is_told_of_every_candidate(studied: Studied) -> None:
    study = studied.client.get_run(run_id(studied.result))
    children = studied.client.search_runs(
        ["1"], f"tags.`mlflow.parentRunId` = '{study.info.run_id}'"
    )
    names = ["load_ms", "load_peak_bytes"] if sys.platform == "linux" else ["load_ms"]
    assert children
    for name in names:
        every = [study.data.metrics[f"float_{name}"]]
        every += [child.data.metrics[name] for child in children]
        assert all(0 < each < 1e9 for each in every)
    page = (studied.folder / last_line(studied.result, "report")).read_text()
    titles = re.findall(r"<th[^>]*>\s*<button[^>]*>([^<]*)</button>", page)
    after = titles[titles.index("latency") + 1 :]
    assert after[: len(names)] == ["load", "load memory"][: len(names)]
    assert "load" not in studied.result.out.split("report:")[0]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["seqto", "-m"], "seqto -m"),
        (["/a folder/seqto/__main__.py", "-m"], "python -m seqto -m"),
        (["/bin/seqto", "model.path=a b's.onnx"], """seqto 'model.path=a b'"'"'s.onnx'"""),
        (
            ["seqto", "tracking.uri=https://me:secret@host/a@b", "-m"],
            "seqto tracking.uri=https://***@host/a@b -m",
        ),
    ],
)
def test_command_is_kept_as_it_can_be_typed_but_without_passwords(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], shown: str
) -> None:
    monkeypatch.setattr(sys, "argv", typed)
    assert command_line() == shown


def test_registered_models_load(studied: Studied, go_on: Command) -> None:
    assert "@balanced" in last_line(studied.result, "models")
    samples = DigitsDataset().load(input_specs(EmbeddedModel().load())).evaluation
    image = samples.inputs["image"][:4]
    mlflow.set_tracking_uri(f"sqlite:///{studied.folder / 'mlflow.db'}")
    uri = "models:/seqto-digits-cpu-static@accurate"
    onnx.checker.check_model(mlflow.onnx.load_model(uri))
    served = mlflow.pyfunc.load_model(uri)
    assert served.metadata.signature is not None
    assert served.predict({"image": image})["logits"].shape == (4, 10)


def test_the_same_command_again_measures_nothing(studied: Studied, go_on: Command) -> None:
    second = go_on(*SHORT, "-m")
    assert run_id(studied.result) == run_id(second)
    assert "candidates were measured before" in second.out
    versions = studied.client.search_model_versions("name = 'seqto-digits-cpu-static'")
    assert len({each.run_id for each in versions}) == len(versions), "registered twice"
    third = go_on(*SHORT, "study.resume=false", "-m")
    assert run_id(third) != run_id(second) and "measured before" not in third.out


def test_jobs_of_a_study_share_what_was_prepared(studied: Studied) -> None:
    assert studied.loads == 1


def test_commas_multiply_into_studies(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*SHORT, "quantization=static,dynamic", "search.maximum=1", "-m")
    assert result.code == 0, result.err
    found = client(tmp_path).search_runs(["1"], "tags.`seqto.kind` = 'study'")
    assert {run.data.tags["seqto.quantization"] for run in found} == {"static", "dynamic"}


def test_a_study_that_fails_does_not_stop_the_others(seqto: Command, tmp_path: Path) -> None:
    grid = ["precisions=[int9,float32],[int8,float32]", "search.maximum=0"]
    result = seqto(*SHORT, *grid, "-m")
    assert result.code == 1
    assert "did you mean 'int8'" in result.err and "1 of 2 studies failed" in result.err
    (study,) = client(tmp_path).search_runs(["1"], "tags.`seqto.kind` = 'study'")
    assert study.info.status == "FINISHED"


@pytest.mark.parametrize(
    "objectives", ["[accuracy_loss,latency_ms]", "[accuracy_loss,size_bytes,latency_ms]"]
)
def test_latency_can_be_an_objective(seqto: Command, tmp_path: Path, objectives: str) -> None:
    result = seqto(*SHORT, "search.maximum=8", f"objectives={objectives}", "-m")
    assert result.code == 0, result.err
    (report,) = tmp_path.glob("multirun/*/*/report.json")
    content = json.loads(report.read_text())
    assert f"[{','.join(content['objectives'])}]" == objectives
    fastest = min(content["candidates"], key=lambda each: each["metrics"]["latency_ms"])
    assert fastest["pareto"], "none is as fast"


def test_topk_metric(seqto: Command) -> None:
    result = seqto(*SHORT, "search.maximum=8", "metric=topk", "metric.k=3", "-m")
    assert result.code == 0, result.err
    assert "topk loss" in result.out


def test_single_candidate_is_saved_where_the_last_line_says(seqto: Command, tmp_path: Path) -> None:
    result = seqto("candidate.top=2", "device.repeats=3")
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1].startswith("model:")
    path = tmp_path / last_line(result, "model")
    onnx.checker.check_model(onnx.load(path))
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    run = client(tmp_path).get_run(run_id(result))
    assert run.info.status == "FINISHED" and "mlflow.parentRunId" not in run.data.tags
    assert run.data.metrics["size_bytes"] == path.stat().st_size
    assert run.data.params["excluded_count"] == "2"


def test_candidate_of_a_study_is_built_again(studied: Studied, go_on: Command) -> None:
    study = run_id(studied.result)
    child = studied.client.search_runs(
        ["1"], f"tags.`mlflow.parentRunId` = '{study}' and tags.`seqto.index` = '1'"
    )[0]
    result = go_on(*SHORT, f"candidate.from_run={child.info.run_id}")
    assert result.code == 0, result.err
    again = studied.client.get_run(run_id(result))
    assert again.data.tags["seqto.sha256"] == child.data.tags["seqto.sha256"]
    assert again.data.metrics["accuracy_loss"] == child.data.metrics["accuracy_loss"]


def test_without_a_choice_every_layer_is_quantized(seqto: Command) -> None:
    result = seqto("device.repeats=3")
    assert result.code == 0, result.err
    assert result.out.startswith("0 of 24 layers in float32")


def test_other_precisions_are_told(seqto: Command) -> None:
    result = seqto("candidate.precisions={float16:[/dense/Gemm]}", "device.repeats=3")
    assert result.code == 0, result.err
    assert result.out.startswith("layers 23xi8 1xf16: ")


def test_excluded_layers_by_name(seqto: Command, tmp_path: Path) -> None:
    result = seqto("candidate.excluded=['/dense/Gemm']", "device.repeats=3")
    assert result.code == 0, result.err
    assert result.out.startswith("1 of ")
