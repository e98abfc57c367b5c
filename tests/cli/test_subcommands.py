"""`seqto study`, `candidate`, `promote`, `report` and `compare`, own configs, and completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command
from mlflow.tracking import MlflowClient

from seqto import models
from seqto.cli.completion import prepared
from seqto.cli.config_dirs import config_dir, without_config_dir

QUICK = ["dataset.evaluation_size=100", "device.repeats=2", "sensitivity.samples=4"]
SHORT = ["search=ladder", "sensitivity=paper", "search.step=12"]
MINE = f"""\
# The digits model once more, under another name.
_target_: seqto.models.local.LocalModel
name: mine  # its name in runs
path: {Path(models.__file__).parent / "data" / "digits.onnx"}  # the file
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a user's folder of configs, with one model."""
    folder = tmp_path / "my configs"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "mine.yaml").write_text(MINE)
    return folder


def test_study_candidate_report_compare_and_promote(seqto: Command, tmp_path: Path) -> None:
    for quantization in ("static", "dynamic"):
        done = seqto("study", *QUICK, *SHORT, f"quantization={quantization}")
        assert done.code == 0, done.err
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    studies = client.search_runs(
        ["1"], "tags.`seqto.kind` = 'study'", order_by=["attributes.start_time"]
    )
    ids = [run.info.run_id for run in studies]
    assert len(ids) == 2
    one = seqto("candidate", *QUICK, f"candidate.from_run={_child(client, ids[0])}")
    assert one.code == 0 and "digits-static-" in one.out, one.err
    report = seqto("report", ids[0], "--output", "again")
    assert report.code == 0 and (tmp_path / "again" / "report.html").is_file(), report.err
    compared = seqto("compare", *ids, "--output", "both")
    assert compared.code == 0 and (tmp_path / "both" / "comparison.html").is_file(), compared.err
    promoted = seqto("promote", *QUICK, "--dry-run")
    assert promoted.code == 0 and "would be promoted" in promoted.out, promoted.err


def _child(client: MlflowClient, study: str) -> str:
    children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{study}'")
    return str(children[0].info.run_id)


def test_study_may_have_its_flag_too_but_a_candidate_may_not(seqto: Command) -> None:
    assert seqto("study", "model=none", "-m").code == 1
    result = seqto("candidate", "-m")
    assert result.code == 1 and "leave out -m, or write study" in result.err


@pytest.mark.parametrize("command", ["study", "candidate"])
def test_help_of_a_command_is_the_manual(seqto: Command, command: str) -> None:
    assert seqto(command, "--help").out == seqto("--help").out


@pytest.mark.parametrize("command", ["promote", "report", "compare"])
def test_help_of_other_commands_is_their_own(seqto: Command, command: str) -> None:
    result = seqto(command, "--help")
    assert result.code == 0 and f"seqto {command}" in result.out


def test_own_configs_are_used_and_explained(seqto: Command, mine: Path) -> None:
    words = ["--config-dir", str(mine)]
    done = seqto("model=mine", *QUICK, *words)
    assert done.code == 0 and "mine-static-" in done.out, done.err
    page = seqto("--help", *words).out
    assert "mine                The digits model once more" in page
    assert "mine                The digits" not in seqto("--help").out
    keys = seqto("--help", "model=mine", f"--config-dir={mine}").out
    assert keys.startswith("model=mine: The digits model") and "model.name=mine" in keys
    assert "is no choice of a group" in seqto("--help", "model=mine").err
    missing = seqto("--help", "--config-dir", "nowhere")
    assert missing.code == 1 and "--config-dir nowhere is no folder" in missing.err
    promoted = seqto("promote", "model=mine", *words)
    assert promoted.code == 1 and "no registered model 'seqto-mine-cpu-static'" in promoted.err


def test_flags_of_config_folders_are_found_in_all_forms() -> None:
    for words in (["--config-dir", "mine"], ["-cd", "mine"], ["--config-dir=mine"]):
        line = ["a=1", *words, "b=2"]
        assert config_dir(line) == Path("mine")
        assert without_config_dir(line) == ["a=1", "b=2"]
    assert config_dir(["a=1", "--config-dir"]) is None


def completions(line: str, folder: Path) -> list[str]:
    """Return what a shell is offered after this line."""
    program = Path(sys.executable).parent / "seqto"
    done = subprocess.run(
        [program, "-sc", "query=bash"],
        env={**os.environ, "COMP_LINE": line, "COMP_POINT": str(len(line))},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_groups_keys_choices_and_commands_are_completed(tmp_path: Path) -> None:
    assert completions("seqto search=o", tmp_path) == ["search=oneshot"]
    assert "quantization.per_channel=" in completions("seqto study quantization.per", tmp_path)
    first = completions("seqto comp", tmp_path)
    assert "compare" in first


def test_own_configs_are_completed(mine: Path) -> None:
    folder = mine.rename(mine.parent / "mine").parent
    assert completions("seqto --config-dir mine model=m", folder) == [
        "model=memory",
        "model=mine",
        "model=mobilenetv2",
    ]
    assert completions("seqto study -cd mine model=min", folder) == ["model=mine"]
    assert "model=mine" not in completions("seqto model=m", folder)


def test_words_that_ask_for_no_completion_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "seqto --config-dir mine ")
    assert prepared(["model=digits", "-m"]) == ["model=digits", "-m"]
    monkeypatch.delenv("COMP_LINE")
    assert prepared(["-sc", "query=bash"]) == ["-sc", "query=bash"]
