"""Other sweepers than seqto's: what their jobs run, and what they return."""

import json
from pathlib import Path

import pytest
import yaml
from commands import Command
from mlflow.tracking import MlflowClient

QUICK = ["dataset.evaluation_size=100", "device.repeats=2", "sensitivity.samples=4"]
SHORT = ["search=ladder", "sensitivity=paper", "search.step=12"]


def runs(folder: Path, kind: str) -> list[dict[str, float]]:
    """Return the metrics of the runs of this kind, the oldest first."""
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    found = client.search_runs(
        ["1"], f"tags.`seqto.kind` = '{kind}'", order_by=["attributes.start_time"]
    )
    return [run.data.metrics for run in found]


def test_without_a_candidate_each_job_is_a_study(seqto: Command, tmp_path: Path) -> None:
    result = seqto("hydra/sweeper=basic", *QUICK, *SHORT, "quantization=static,dynamic", "-m")
    assert result.code == 0, result.err
    said = "hydra/sweeper=basic: each of its jobs is a study by itself"
    assert result.out.startswith(said) and result.out.count(said) == 1
    assert len(runs(tmp_path, "study")) == 2
    reports = sorted(tmp_path.glob("multirun/*/*/*/report.json"))
    assert [each.parent.name for each in reports] == ["0", "1"]
    tags = [json.loads(each.read_text())["study"]["tags"] for each in reports]
    assert [each["seqto.quantization"] for each in tags] == ["static", "dynamic"]


def test_with_a_candidate_each_job_measures_it(seqto: Command, tmp_path: Path) -> None:
    result = seqto("hydra/sweeper=basic", *QUICK, "candidate.top=0,3", "-m")
    assert result.code == 0, result.err
    assert result.out.startswith(
        "hydra/sweeper=basic: each of its jobs measures one candidate by itself: a run without a "
    )
    assert len(runs(tmp_path, "candidate")) == 2 and not runs(tmp_path, "study")


def test_an_error_of_a_job_is_the_sweepers(seqto: Command) -> None:
    result = seqto("hydra/sweeper=basic", *QUICK, "candidate.top=99", "-m")
    assert result.code == 1
    assert "candidate.top=99 has to be a whole number from 0 to 24" in result.err.splitlines()[-1]


def test_an_unmet_constraint_does_not_end_the_sweep(seqto: Command) -> None:
    words = [*QUICK, *SHORT, "constraint.max_size_ratio=0.01,0.9"]
    result = seqto("hydra/sweeper=basic", *words, "-m")
    assert result.code == 0, result.err
    assert "seqto: no candidate has size_ratio <= 0.01" in result.err
    assert "has size_ratio <= 0.9" in result.out


def test_optuna_minimises_what_jobs_return(seqto: Command, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="needs seqto[optuna]")
    result = seqto(
        *("hydra/sweeper=optuna", "hydra.sweeper.direction=[minimize,minimize]"),
        *("hydra.sweeper.n_trials=3", "hydra.sweeper.sampler.seed=1"),
        *(*QUICK, "candidate.top=range(0,24)", "-m"),
    )
    assert result.code == 0, result.err
    measured = [(each["accuracy_loss"], each["size_bytes"]) for each in runs(tmp_path, "candidate")]
    assert len(measured) == 3
    (results,) = tmp_path.glob("multirun/*/*/optimization_results.yaml")
    solutions = yaml.safe_load(results.read_text())["solutions"]
    found = {tuple(each["values"]) for each in solutions}
    best = {
        point
        for point in measured
        if not any(
            other != point and other[0] <= point[0] and other[1] <= point[1] for other in measured
        )
    }
    assert found == best
