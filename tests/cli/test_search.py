"""Searches, precisions and constraints from the command line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from commands import Command, Result
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

QUICK = [
    "dataset.evaluation_size=100",
    "sensitivity.samples=8",
    "search.screens=8",
    "search.budgets=4",
    "search.evaluations=4",
    "device.repeats=2",
]
ONE = ["dataset.evaluation_size=100", "device.repeats=2"]
MIXED = "precisions=[int4,int8,float16,float32]"


def last_line(result: Result, label: str) -> str:
    lines = [line for line in result.out.splitlines() if line.startswith(f"{label}:")]
    assert lines, result.out
    return lines[-1].partition(":")[2].strip()


def client(folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def opened(result: Result, folder: Path) -> Run:
    """Return the run that the command says to open."""
    return client(folder).get_run(last_line(result, "open").rpartition("/")[2].partition("?")[0])


def children(result: Result, folder: Path) -> list[Run]:
    study = opened(result, folder)
    found = client(folder).search_runs(["1"], f"tags.`mlflow.parentRunId` = '{study.info.run_id}'")
    return sorted(found, key=lambda run: int(run.data.tags["seqto.index"]))


def report(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("multirun/*/*/report.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def complaint(result: Result) -> str:
    """Return the one line of a command that failed."""
    # Few samples may rank unsurely, which is warned of before.
    *warnings, line = result.err.strip().splitlines()
    assert all("ranking is unsure" in warning for warning in warnings)
    assert line.startswith("seqto: error: ")
    return line


def test_default_search_evaluates_a_few_with_intervals(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*QUICK, "-m")
    assert result.code == 0, result.err
    assert "budget search" in result.out
    assert "answer:" not in result.out
    runs = children(result, tmp_path)
    assert 2 <= len(runs) <= 4
    for run in runs:
        metrics = run.data.metrics
        low, high = metrics["accuracy_loss_low"], metrics["accuracy_loss_high"]
        assert 0 <= low <= metrics["accuracy_loss"] + 1e-12 <= high <= 1
        assert high > low
        assert metrics["divergence"] >= 0
    first, *others = report(tmp_path)["candidates"]
    assert set(first["precisions"].values()) == {"int8"}, "what everybody would try first"
    assert all(each["metrics"]["size_bytes"] != first["metrics"]["size_bytes"] for each in others)


def test_mixed_precisions_are_reported_and_rebuilt(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*QUICK, MIXED, "-m")
    assert result.code == 0, result.err
    content = report(tmp_path)
    layers = {each["layer"] for each in content["sensitivity"]}
    used = set()
    for candidate in content["candidates"]:
        assert set(candidate["precisions"]) == layers
        used |= set(candidate["precisions"].values())
    assert {"int4", "int8"} <= used <= {"int4", "int8", "float16", "float32"}
    mixed = [each for each in content["candidates"] if len(set(each["precisions"].values())) > 1]
    assert mixed, "or nothing is mixed in this test"
    chosen = mixed[0]
    again = seqto(*QUICK, MIXED, f"candidate.from_run={chosen['run_id']}")
    assert again.code == 0, again.err
    run = opened(again, tmp_path)
    assert run.data.tags["seqto.sha256"] == chosen["model_sha256"]
    assert run.data.metrics["accuracy_loss"] == chosen["metrics"]["accuracy_loss"]
    path = tmp_path / last_line(again, "model")
    assert path.stat().st_size == chosen["metrics"]["size_bytes"]


def smallest_of(runs: Sequence[Run]) -> Run:
    """Return the smallest model that was measured; ruined ones may have no finite outputs."""
    measured = [run for run in runs if run.info.status == "FINISHED"]
    return min(measured, key=lambda run: run.data.metrics["size_bytes"])


def test_a_limit_that_all_meet_is_answered_with_the_smallest(
    seqto: Command, tmp_path: Path
) -> None:
    result = seqto(*QUICK, "constraint.max_accuracy_loss=1.0", "-m")
    assert result.code == 0, result.err
    smallest = smallest_of(children(result, tmp_path))
    answer = last_line(result, "answer")
    assert answer.startswith(f"#{smallest.data.tags['seqto.index']} has accuracy_loss <= 1: ")
    assert last_line(result, "run") == smallest.info.run_id


def test_a_limit_that_none_meets_names_the_nearest(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*QUICK, "constraint.max_size_ratio=0.01", "-m")
    assert result.code == 3
    line = complaint(result)
    runs = client(tmp_path).search_runs(["1"], "tags.`seqto.index` != ''")
    smallest = smallest_of(runs)
    nearest = f"#{smallest.data.tags['seqto.index']} (run {smallest.info.run_id})"
    assert f"no candidate has size_ratio <= 0.01; the nearest is {nearest}: " in line
    assert "answer:" not in result.out
    # The study itself is complete, and its front is there to look at.
    assert opened(result, tmp_path).info.status == "FINISHED"


def test_single_candidate_of_chosen_precisions(seqto: Command, tmp_path: Path) -> None:
    full = seqto(*ONE)
    result = seqto(*ONE, "candidate.precisions={float16:[/dense/Gemm]}")
    assert result.code == 0, result.err
    path = tmp_path / last_line(result, "model")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    halves = [
        each for each in model.graph.initializer if each.data_type == onnx.TensorProto.FLOAT16
    ]
    assert len(halves) >= 1
    run = opened(result, tmp_path)
    assert run.data.tags["seqto.sha256"] != opened(full, tmp_path).data.tags["seqto.sha256"]
    assert run.data.params["excluded_count"] == "0"


def test_precision_that_is_unknown_is_one_line_with_the_choices(seqto: Command) -> None:
    study = seqto(*QUICK, "precisions=[int9,float32]", "-m")
    assert study.code == 1
    assert "'int9' (did you mean 'int8'" in complaint(study)
    single = seqto(*ONE, "candidate.precisions={flot16:[/dense/Gemm]}")
    assert single.code == 1
    assert "flot16" in complaint(single) and "float16" in complaint(single)


def test_layer_that_is_unknown_is_one_line_with_the_nearest(seqto: Command) -> None:
    result = seqto(*ONE, "candidate.precisions={float16:[/dens/Gemm]}")
    assert result.code == 1
    line = complaint(result)
    assert "candidate.precisions names layers" in line
    assert "'/dens/Gemm' (did you mean '/dense/Gemm'" in line


@pytest.mark.parametrize("metric", ["sqnr", "mse", "sqnr_delta"])
def test_one_decision_is_made_as_quantune_does(seqto: Command, tmp_path: Path, metric: str) -> None:
    words = ["search=oneshot", "sensitivity=local", f"sensitivity.metric={metric}", MIXED]
    result = seqto(*ONE, *words, "sensitivity.samples=4", "-m")
    assert result.code == 0, result.err
    content = report(tmp_path)
    assert len(content["candidates"]) == 3 and content["screening"] == []
    chosen = content["candidates"][1]["precisions"]
    sizes = {each["layer"]: each["weight_bytes"] for each in content["sensitivity"]}
    left = sum(sizes[name] for name, each in chosen.items() if each.startswith("float"))
    assert 0 < left <= 0.1 * sum(sizes.values())
    assert {"int4", "int8"} <= set(chosen.values())


@pytest.mark.parametrize("search", ["budget", "oneshot"])
def test_the_share_left_in_float_may_be_limited(
    seqto: Command, tmp_path: Path, search: str
) -> None:
    words = QUICK if search == "budget" else [*ONE, "search=oneshot", "sensitivity=local"]
    result = seqto(*words, "constraint.max_float_share=0.05", "-m")
    assert result.code == 0, result.err
    assert "has float_share <= 0.05" in last_line(result, "answer")
    content = report(tmp_path)
    weights = {each["layer"]: each["weight_bytes"] for each in content["sensitivity"]}
    for candidate in content["candidates"]:
        given = candidate["precisions"].items()
        left = sum(weights[name] for name, each in given if each.startswith("float"))
        share = left / sum(weights.values())
        assert candidate["metrics"]["float_share"] == pytest.approx(share, rel=1e-5)
    chosen = content["candidates"][content["recommended"]["answer"]]
    within = [each for each in content["candidates"] if each["metrics"]["float_share"] <= 0.05]
    assert len(within) > 1, "more than the fully quantized one is within the limit"
    losses = [each["metrics"]["accuracy_loss"] for each in within]
    assert chosen["metrics"]["accuracy_loss"] == min(losses)


def test_sensitivity_without_costs_is_one_line_with_the_remedy(seqto: Command) -> None:
    result = seqto(*ONE, "sensitivity=paper", "sensitivity.samples=2", MIXED, "-m")
    assert result.code == 1
    line = complaint(result)
    assert "does not predict what float16" in line and "sensitivity=divergence" in line
