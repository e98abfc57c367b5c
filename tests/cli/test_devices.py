"""Devices from the command line: failures that teach, and devices compared."""

import json
from pathlib import Path

import pytest
from commands import Command
from mlflow.tracking import MlflowClient

QUICK = [
    "dataset.evaluation_size=100",
    "sensitivity.samples=8",
    "search.screens=8",
    "search.budgets=4",
    "search.evaluations=3",
    "device.repeats=2",
]


def runs(folder: Path, kind: str) -> list[object]:
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return list(client.search_runs(["1"], f"tags.`seqto.kind` = '{kind}'"))


@pytest.mark.slow
def test_a_study_goes_on_without_what_the_device_lacks(seqto: Command, tmp_path: Path) -> None:
    result = seqto("device=fake", "device.crashes=[Gemm]", *QUICK, "-m")
    assert result.code == 0, result.err
    assert "cannot run" in result.err and "left in float32" in result.err
    (study,) = runs(tmp_path, "study")
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    path = client.download_artifacts(study.info.run_id, "device_exclusions.json", str(tmp_path))  # type: ignore[attr-defined]
    document = json.loads(Path(path).read_text())
    assert [row["op_type"] for row in document["layers"]] == ["Gemm"]
    failed = [run for run in runs(tmp_path, "candidate") if run.info.status == "FAILED"]  # type: ignore[attr-defined]
    assert [run.data.tags["seqto.failure"].split(":")[0] for run in failed] == ["DeviceRunError"]  # type: ignore[attr-defined]
    assert document["layers"][0]["run"] == failed[0].info.run_id  # type: ignore[attr-defined]


def test_lost_candidates_are_told_and_no_alias_moves(seqto: Command, tmp_path: Path) -> None:
    words = ["device=fake", "device.loses=[Gemm]", *QUICK[:2], "device.repeats=2"]
    words += ["search=ladder", "search.step=24", "precisions=[int8,float32]", "-m"]
    result = seqto(*words)
    assert result.code == 1
    told = "1 of 2 candidates was not measured because the device got lost"
    assert told in " ".join(result.out.split()) and told in result.err
    assert "The same command measures them" in result.err and "no alias moves" in result.err
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert not client.search_registered_models()
    (study,) = runs(tmp_path, "study")
    assert study.info.status == "FAILED"  # type: ignore[attr-defined]
    assert told in study.data.tags["mlflow.note.content"]  # type: ignore[attr-defined]
    (page,) = tmp_path.glob("multirun/*/*/report.html")
    assert told in page.read_text()
    assert json.loads(page.with_name("report.json").read_text())["lost"] == [0]
    # Who says that so many may fail has the answer without them.
    result = seqto(*words, "study.max_failed=0.5")
    assert result.code == 0, result.err
    assert told in " ".join(result.out.split())
    assert client.get_model_version_by_alias("seqto-digits-fake-static", "balanced")


@pytest.mark.slow
def test_devices_are_compared(seqto: Command, tmp_path: Path) -> None:
    # On each device others are the default.
    same = ["device=cpu,tvm", "device.threads=1", "precisions=[int8,float32]"]
    ladder = ["search=ladder", "search.step=24", "sensitivity=local"]
    result = seqto(*same, *QUICK[:2], *ladder, "device.repeats=2", "-m")
    assert result.code == 0, result.err
    (page,) = tmp_path.glob("multirun/*/*/comparison.html")
    assert f"compare: {page.relative_to(tmp_path)}" in result.out
    text = page.read_text()
    assert text.count(" of 24</td>") >= 2, "the devices measured the same candidates"
    assert ">cpu</th>" in text and ">tvm</th>" in text


def test_a_forced_key_is_for_the_devices_that_have_it(seqto: Command, tmp_path: Path) -> None:
    grid = ["device=cpu,fake", "++device.crashes=[Gemm]", "++device.repeats=1"]
    result = seqto(*grid, *QUICK[:2], "search=ladder", "search.step=24", "-m")
    assert result.code == 0, result.err
    assert "study 1 of 2: device=cpu ++device.repeats=1" in result.out
    assert "study 2 of 2: device=fake ++device.crashes=[Gemm] ++device.repeats=1" in result.out


def test_a_forced_key_that_has_to_be_given_is_for_the_models_that_have_it(seqto: Command) -> None:
    result = seqto("model=local,digits", "++model.path=nowhere.onnx", "dataset=random", "-m")
    assert "study 1 of 2: model=local ++model.path=nowhere.onnx" in result.out
    assert result.err.count("nowhere.onnx does not exist") == 1
    assert "does not take path" not in result.err


def test_a_forced_key_that_no_device_has_is_refused(seqto: Command) -> None:
    result = seqto("device=cpu,fake", "++device.crash=[Gemm]", "-m")
    assert result.code == 1
    assert result.err.count("does not take crash=") == 2


def test_an_unknown_device_gives_the_choices(seqto: Command) -> None:
    result = seqto("device=gpu", "-m")
    assert result.code == 1
    assert "cpu, fake, mali, opencl, ort, tvm, tvm_rpc" in result.err


def test_a_missing_provider_names_the_package(seqto: Command) -> None:
    result = seqto("device=ort", "device.provider=CUDAExecutionProvider", "-m")
    assert result.code == 1
    assert "CPUExecutionProvider" in result.err and "pip install onnxruntime-gpu" in result.err
