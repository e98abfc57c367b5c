"""Schemes of quantization from the command line."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from commands import Command, Result
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

QUICK = [
    "quantization=auto",
    "quantization.samples=4",
    "dataset.evaluation_size=100",
    "sensitivity.samples=4",
    "search.screens=4",
    "search.budgets=6",
    "search.evaluations=3",
    "device.repeats=2",
]
ONE = ["quantization=auto", "dataset.evaluation_size=100", "device.repeats=2"]


def client(folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def opened(result: Result, folder: Path) -> Run:
    """Return the run that the command says to open."""
    assert result.code == 0, result.err
    (line,) = (line for line in result.out.splitlines() if line.startswith("open:"))
    return client(folder).get_run(line.rpartition("/")[2].partition("?")[0])


def complaint(result: Result) -> str:
    """Return the one line of a command that failed."""
    assert result.code == 1
    (line,) = result.err.strip().splitlines()
    assert line.startswith("seqto: error: ")
    return line


def artifact(folder: Path, run: str, name: str) -> Any:
    return json.loads(Path(client(folder).download_artifacts(run, name)).read_text())


@pytest.mark.slow
def test_study_compares_schemes_and_goes_on_from_the_best(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*QUICK, "-m")
    study = opened(result, tmp_path)
    (path,) = tmp_path.glob("multirun/*/*/report.json")
    report = json.loads(path.read_text())
    schemes = report["schemes"]
    assert len(schemes) == 14
    harms = [row["divergence"] for row in schemes]
    assert harms == sorted(harms)
    bases = [row["scheme"] for row in schemes if row["base"]]
    assert bases[0] == schemes[0]["scheme"] and 1 <= len(bases) <= 2
    # Each is printed, with its figures.
    for row in schemes:
        (line,) = (each for each in result.out.splitlines() if each.startswith(row["scheme"] + " "))
        assert f"{row['divergence']:.4f}  {row['exact_divergence']:.4f}" in line
        assert line.rstrip().endswith("base") is row["base"]
    assert artifact(tmp_path, study.info.run_id, "schemes.json") == {"schemes": schemes}
    screening = artifact(tmp_path, study.info.run_id, "screening.json")["screening"]
    assert screening == report["screening"]
    assert {row["scheme"] for row in screening} == set(bases)
    # The jobs got their scheme, and their runs say what they need.
    assert 2 <= len(report["candidates"]) <= 3
    for candidate in report["candidates"]:
        assert candidate["state"] == "COMPLETE" and candidate["scheme"] in bases
        run = client(tmp_path).get_run(candidate["run_id"])
        safe = candidate["scheme"].endswith("safe")
        assert run.data.tags["seqto.session.x64quantprecision"] == ("1" if safe else "0")
    chosen = report["candidates"][report["recommended"]["balanced"]]
    assert f"({chosen['scheme']})" in result.out
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    info = mlflow.models.get_model_info("models:/seqto-digits-cpu-auto@balanced")
    safe = chosen["scheme"].endswith("safe")
    assert info.metadata["session.x64quantprecision"] == ("1" if safe else "0")
    # Again: nothing is compared or measured anew.
    again = seqto(*QUICK, "-m")
    assert "candidates were measured before and not run again" in again.out
    assert opened(again, tmp_path).info.run_id == study.info.run_id
    assert artifact(tmp_path, study.info.run_id, "schemes.json") == {"schemes": schemes}
    # And one of them on its own.
    alone = opened(seqto(*QUICK, f"candidate.from_run={chosen['run_id']}"), tmp_path)
    assert alone.data.tags["seqto.sha256"] == chosen["model_sha256"]


def test_single_candidate_in_a_scheme(seqto: Command, tmp_path: Path) -> None:
    runs = {
        scheme: opened(seqto(*ONE, f"candidate.scheme='{scheme}'"), tmp_path)
        for scheme in ("uint8 per tensor, safe", "uint8 per tensor, fast")
    }
    for scheme, run in runs.items():
        document = artifact(tmp_path, run.info.run_id, "excluded_layers.json")
        assert document["scheme"] == scheme
        assert set(document["precisions"].values()) == {"int8"}
    safe, fast = (run.data for run in runs.values())
    assert safe.tags["seqto.session.x64quantprecision"] == "1"
    assert fast.tags["seqto.session.x64quantprecision"] == "0"
    assert safe.tags["seqto.sha256"] != fast.tags["seqto.sha256"]
    assert safe.metrics["size_bytes"] == fast.metrics["size_bytes"]
    # Each has a file of its own, though they are the same.
    files = [path.read_bytes() for path in tmp_path.glob("outputs/*/*/*.onnx")]
    assert len(files) == 2 and files[0] == files[1]
    without = opened(seqto(*ONE), tmp_path)
    assert without.data.metrics["size_bytes"] != safe.metrics["size_bytes"]


def test_scheme_that_is_unknown_is_one_line_with_the_choices(seqto: Command) -> None:
    line = complaint(seqto(*ONE, "candidate.scheme='int9 per channel'"))
    assert "no candidate.scheme='int9 per channel'" in line
    assert "7 bits per tensor, fast" in line


def test_scheme_without_schemes_is_one_line_with_the_remedy(seqto: Command) -> None:
    line = complaint(seqto(*ONE[1:], "candidate.scheme='int8 per channel, safe'"))
    assert "Only quantization=auto has any" in line


def test_scheme_of_one_candidate_is_no_study(seqto: Command) -> None:
    line = complaint(seqto(*QUICK, "candidate.scheme='int8 per channel, safe'", "-m"))
    assert "candidate.scheme chooses one candidate, but -m runs a study" in line


def test_candidate_of_a_scheme_is_rebuilt_by_its_own_quantizer_only(
    seqto: Command, tmp_path: Path
) -> None:
    run = opened(seqto(*ONE, "candidate.scheme='uint8 per tensor, fast'"), tmp_path)
    rebuild = f"candidate.from_run={run.info.run_id}"
    again = opened(seqto(*ONE, rebuild), tmp_path)
    assert again.data.tags["seqto.sha256"] == run.data.tags["seqto.sha256"]
    # It would be another model.
    assert "uint8 per tensor, fast" in complaint(seqto(*ONE[1:], rebuild))


def test_wrong_option_is_one_line(seqto: Command) -> None:
    line = complaint(seqto(*ONE, "quantization.only=['int8 per chanel']"))
    assert "did you mean 'int8 per channel'" in line
