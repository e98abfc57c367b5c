"""The gate of a study: exit code 3 and one line where no member of the front meets it."""

from pathlib import Path

from commands import Command
from mlflow.tracking import MlflowClient

SHORT = [
    "search=ladder",
    "sensitivity=paper",
    "search.step=12",
    "dataset.evaluation_size=100",
    "device.repeats=3",
]


def gate_tags(folder: Path) -> list[dict[str, str]]:
    found = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}").search_runs(
        ["1"], "tags.`seqto.kind` = 'study'"
    )
    assert all(run.info.status == "FINISHED" for run in found)
    return [
        {name: value for name, value in run.data.tags.items() if name.startswith("seqto.gate")}
        for run in found
    ]


def test_gate_of_a_study(seqto: Command, tmp_path: Path) -> None:
    plain = seqto(*SHORT, "-m")
    assert plain.code == 0, plain.err
    assert gate_tags(tmp_path) == [{}]

    failed = seqto(*SHORT, "gate.max_accuracy_loss=0", "gate.min_size_reduction=0.9", "-m")
    assert failed.code == 3
    assert "candidates were measured before" in failed.out, "a gate makes no other study"
    (line,) = failed.err.strip().splitlines()
    assert "no member of the front has accuracy_loss <= 0, size_reduction >= 0.9" in line
    assert "the nearest is #" in line and "% of the size" in line
    limits = "accuracy_loss <= 0, size_reduction >= 0.9"
    assert gate_tags(tmp_path) == [{"seqto.gate": "failed", "seqto.gate_limits": limits}]
    assert "@balanced" in failed.out, "all is registered, whatever the gate says"

    passed = seqto(*SHORT, "gate.max_accuracy_loss=1.0", "-m")
    assert passed.code == 0, passed.err
    assert "gate:" in passed.out
    assert gate_tags(tmp_path)[0]["seqto.gate"] == "passed"


def test_a_grid_of_which_only_gates_fail_has_their_exit_code(seqto: Command) -> None:
    grid = ["quantization=static,dynamic", "search.maximum=0", "gate.min_size_reduction=0.99"]
    result = seqto(*SHORT, *grid, "-m")
    assert result.code == 3
    assert result.err.count("no member of the front") == 2
    assert "2 of 2 studies failed" in result.err


def test_bad_gate_gets_one_line(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").unlink()
    result = seqto(*SHORT, "gate.max_latency_ms=fast", "-m")
    assert result.code == 1
    (line,) = result.err.strip().splitlines()
    assert "max_latency_ms='fast'" in line
    assert not (tmp_path / "mlflow.db").exists(), "told before anything is done"
