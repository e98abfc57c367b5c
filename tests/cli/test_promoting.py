"""`python -m seqto.promote` on a real registry, with models that a real study registered."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import mlflow
import pytest
from commands import Command, Result
from forked_commands import Forked
from mlflow.tracking import MlflowClient

from seqto.cli import main
from seqto.cli.promoting import main as promote_main
from seqto.config import build
from seqto.tracking.versions import MlflowVersions
from seqto.types import Version

NAME = "seqto-digits-cpu-static"
QUICK = ["dataset.evaluation_size=800", "device.repeats=3"]


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, cache: Path, migrated_store: Path) -> Path:
    """Return a store in which a study registered an accurate, a balanced and a small model."""
    folder = tmp_path_factory.mktemp("studied")
    shutil.copy(migrated_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SEQTO_CACHE", str(cache))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.setattr(build, "_last", None)
        ladder = ["search=ladder", "sensitivity=paper", "search.step=6"]
        patch.setattr(sys, "argv", ["seqto", *ladder, *QUICK, "-m"])
        mlflow.set_tracking_uri(None)
        main()
        mlflow.set_tracking_uri(None)
    return folder / "mlflow.db"


@pytest.fixture
def promote(
    seqto: Command, studied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return the command, in a folder with a copy of the store."""
    shutil.copy(studied, tmp_path / "mlflow.db")

    def run(*words: str) -> Result:
        try:
            promote_main([*QUICK, *words])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def client(tmp_path: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")


def aliases(client: MlflowClient) -> Mapping[str, int]:
    return {
        alias: int(number) for alias, number in client.get_registered_model(NAME).aliases.items()
    }


def least_loss(client: MlflowClient) -> str:
    """Return a limit that only the most accurate version meets."""
    version = client.get_model_version(NAME, str(aliases(client)["accurate"]))
    loss = client.get_run(version.run_id).data.metrics["accuracy_loss"]
    return f"max_accuracy_loss={loss}"


def line(result: Result) -> str:
    (only,) = result.err.strip().splitlines()
    return only


def test_first_champion_is_promoted_and_then_already_is(
    promote: Command, client: MlflowClient
) -> None:
    result = promote()
    assert result.code == 0, result.err
    held = aliases(client)
    assert held["champion"] == held["balanced"] and "previous" not in held
    assert f"version {held['champion']} promoted: it is the first" in result.out
    version = client.get_model_version(NAME, str(held["champion"]))
    assert version.tags["seqto.promoted_by"] and "first" in version.tags["seqto.promoted_why"]
    figures = json.loads(version.tags["seqto.promoted_figures"])
    run = client.get_run(version.run_id)
    measured = figures[f"version {version.version}"]
    assert measured["accuracy_loss"] == run.data.metrics["accuracy_loss"]
    assert figures["data"] == version.tags["seqto.data"]
    assert re.match(r"\d+% size, .* candidate \d+", version.description)
    assert "Promoted by" in version.description
    again = promote()
    assert again.code == 0 and "is champion already" in again.out
    assert aliases(client) == held


def test_challenger_takes_over_only_if_it_is_no_worse_beyond_the_tolerance(
    promote: Command, client: MlflowClient
) -> None:
    assert promote().code == 0
    before = aliases(client)
    assert before["accurate"] != before["balanced"]
    refused = promote(least_loss(client))
    assert refused.code == 4
    assert "worse in size (" in line(refused) and "tolerance 0" in line(refused)
    assert re.search(r"size [\d.]+ [KM]B against [\d.]+ [KM]B; ", line(refused))
    assert aliases(client) == before, "nothing was moved"

    dry = promote(least_loss(client), "tolerance=1", "--dry-run")
    assert dry.code == 0 and "would be promoted" in dry.out
    assert aliases(client) == before, "nor by a dry run"
    new = client.get_model_version(NAME, str(before["accurate"]))
    assert "seqto.promoted" not in new.tags

    assert promote(least_loss(client), "tolerance=1").code == 0
    after = aliases(client)
    assert (after["champion"], after["previous"]) == (before["accurate"], before["champion"])
    new = client.get_model_version(NAME, str(after["champion"]))
    figures = json.loads(new.tags["seqto.promoted_figures"])
    assert {f"version {after[alias]}" for alias in ("champion", "previous")} < set(figures)
    assert "better in loss (" in new.tags["seqto.promoted_why"]


def test_rollback_brings_the_previous_one_back_for_good(
    promote: Command, client: MlflowClient
) -> None:
    promote()
    first = promote("rollback")
    assert first.code == 1 and "is its first champion, there is none before it" in line(first)
    promote(least_loss(client), "tolerance=1")
    before = aliases(client)
    dry = promote("rollback", "--dry-run")
    assert dry.code == 0 and aliases(client) == before
    result = promote("rollback")
    assert result.code == 0, result.err
    after = aliases(client)
    assert (after["champion"], after["previous"]) == (before["previous"], before["champion"])
    bad = client.get_model_version(NAME, str(before["champion"]))
    assert "rolled back to" in bad.tags["seqto.rolled_back_why"]
    assert "Rolled back by" in bad.description
    again = promote(least_loss(client), "tolerance=1")
    assert aliases(client)["champion"] != before["champion"], "a pipeline would promote it again"
    assert again.code in (0, 3)
    assert f"skipped: version {before['champion']} was rolled back before" in again.out
    assert promote("rollback").code == 0
    assert aliases(client)["champion"] == before["champion"]
    restored = client.get_model_version(NAME, str(before["champion"]))
    assert "seqto.rolled_back" not in restored.tags


def test_limits_that_no_version_meets(promote: Command, client: MlflowClient) -> None:
    result = promote("max_size_ratio=0.01")
    assert result.code == 3
    assert "no version has size_ratio <= 0.01; the nearest is version" in line(result)
    assert "champion" not in aliases(client)


def test_what_the_study_noted_is_not_trusted(promote: Command, client: MlflowClient) -> None:
    small = client.get_model_version(NAME, str(aliases(client)["small"]))
    assert client.get_run(small.run_id).data.metrics["accuracy_loss"] > 0
    client.log_metric(small.run_id, "accuracy_loss", 0.0, step=1)
    result = promote(least_loss(client))
    assert result.code == 0, result.err
    assert aliases(client)["champion"] == aliases(client)["accurate"]


def test_another_data_set_is_told(promote: Command) -> None:
    assert "another data set" not in promote("--dry-run").out
    other = promote("dataset.evaluation_size=100", "--dry-run")
    assert other.code == 0 and "on another data set" in other.out


def test_the_same_model_under_another_version_is_champion_already(
    promote: Command, client: MlflowClient
) -> None:
    promote()
    held = client.get_model_version(NAME, str(aliases(client)["champion"]))
    twin = client.create_model_version(
        NAME, held.source, run_id=held.run_id, tags=dict(held.tags), model_id=held.model_id
    )
    client.set_registered_model_alias(NAME, "balanced", twin.version)
    result = promote()
    assert result.code == 0 and "champion already" in result.out
    assert aliases(client)["champion"] == int(held.version)


def test_a_champion_of_other_origin_is_measured_all_the_same(
    promote: Command, client: MlflowClient
) -> None:
    small = client.get_model_version(NAME, str(aliases(client)["small"]))
    foreign = client.create_model_version(NAME, small.source, model_id=small.model_id)
    client.set_registered_model_alias(NAME, "champion", foreign.version)
    result = promote(least_loss(client), "tolerance=1")
    assert result.code == 0, result.err
    assert aliases(client)["previous"] == int(foreign.version)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["max_accuracy_loss=-1"], "max_accuracy_loss=-1"),
        (["max_accuracy_los=0.1"], "no config key 'max_accuracy_los'"),
        (["max_acuracy_loss=0.1"], "(did you mean 'max_accuracy_loss'"),
        (["tolerance=-1"], "tolerance=-1"),
        (["device=fake"], "no registered model 'seqto-digits-fake-static' (did you mean"),
        (["champion"], "'champion' is no word of seqto promote"),
        (["--dryrun"], "--dryrun"),
        (["rollback"], "has no champion to roll back"),
        (["model=digits,local"], "model"),
        (["objectives=[accuracy_loss,size]"], "'size'"),
    ],
    ids=" ".join,
)
def test_bad_input_gets_one_line(
    promote: Command, client: MlflowClient, words: list[str], said: str
) -> None:
    result = promote(*words)
    assert result.code == 1
    assert said in line(result)
    assert "champion" not in aliases(client)


def test_help_has_the_exit_codes(promote: Command) -> None:
    result = promote("--help")
    assert result.code == 0
    assert all(f"\n    {code}  " in result.out for code in (0, 1, 3, 4))
    assert max(map(len, result.out.splitlines())) <= 100


def test_two_promotions_at_once_leave_the_better_champion(
    promote: Command, client: MlflowClient, tmp_path: Path
) -> None:
    """Both saw no champion; who comes second compares itself with the first, and is not better."""
    process = _started(tmp_path, least_loss(client))
    seen = MlflowVersions.all
    late = []

    def see(versions: MlflowVersions) -> tuple[Version, ...]:
        found = seen(versions)
        if not late:
            # What it saw is old by the time it acts.
            late.append(process.wait(timeout=200))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlflowVersions, "all", see)
        result = promote("max_accuracy_loss=1")
    assert late == [0]
    held = aliases(client)
    first, second = held["accurate"], held["small"]
    assert result.code == 4 and f"version {second} not promoted over version {first}" in result.err
    assert held["champion"] == first and "previous" not in held
    tags = client.get_registered_model(NAME).tags
    assert not [name for name in tags if name.startswith("seqto.lease.")], "nobody is left"


def test_promotions_of_many_processes_are_one_after_another(
    client: MlflowClient, promote: Command, tmp_path: Path
) -> None:
    words = (least_loss(client), "max_accuracy_loss=1")
    processes = [_started(tmp_path, each, "tolerance=1") for each in words]
    assert {each.wait(timeout=300) for each in processes} <= {0, 4}
    held = aliases(client)
    assert held["champion"] in (held["accurate"], held["small"])
    promoted = [
        each.version
        for each in client.search_model_versions(f"name = '{NAME}'")
        if "seqto.promoted" in each.tags
    ]
    # Whoever was promoted is the champion or the one before.
    assert {int(each) for each in promoted} == {held["champion"], held.get("previous")} - {None}


def _started(folder: Path, *words: str) -> Forked:
    return Forked(["seqto.promote", *QUICK, *words], folder, os.environ)
