"""Two processes, with caches of their own, on one store: nothing is measured or recorded twice."""

import contextlib
import os
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
from forked_commands import Forked
from mlflow.tracking import MlflowClient
from tiny_studies import chain

pytestmark = pytest.mark.slow

STUDY = (
    *("model=local", "model.path=chain.onnx", "dataset.evaluation_size=200"),
    *("search=ladder", "sensitivity=paper", "sensitivity.samples=4"),
    *("device.warmup=0", "device.repeats=1", "device.workers=1"),
)
COUNT = 8
"""Candidates of the ladder over six convolutions and a dense layer."""


class Place:
    """A folder with a model, in which any number of processes begin at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.store = folder, folder / "mlflow.db"
        (folder / "chain.onnx").write_bytes(chain(6).to_bytes())

    def start(self, cache: str, *words: str) -> Forked:
        """Start a study there, as on a machine with a cache of its own."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        own = {"SEQTO_CACHE": str(self.folder.parent / cache)}
        return Forked(["seqto", *STUDY, *words, "-m"], self.folder, {**plain, **own})

    def wait_for(self, finished: int) -> None:
        """Wait until so many runs are finished, without disturbing who writes them."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.Error):
                where = f"file:{self.store}?mode=ro"
                with contextlib.closing(sqlite3.connect(where, uri=True)) as connection:
                    asked = "select count(*) from runs where status = 'FINISHED'"
                    if connection.execute(asked).fetchone()[0] >= finished:
                        return
            time.sleep(0.05)
        raise AssertionError("no candidate was finished in time")

    def check(self, studies: int = 1) -> None:
        """Check that all is there once, and that nobody is left in the store."""
        client = MlflowClient(f"sqlite:///{self.store}")
        experiment = client.get_experiment_by_name("seqto")
        assert not [name for name in experiment.tags if name.startswith("seqto.lease.")]
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        parents = [run for run in runs if run.data.tags["seqto.kind"] == "study"]
        assert [run.info.status for run in parents] == ["FINISHED"] * studies
        finished = Counter(
            (run.data.tags["mlflow.parentRunId"], run.data.tags["seqto.key"])
            for run in runs
            if run.data.tags["seqto.kind"] == "candidate" and run.info.status == "FINISHED"
        )
        assert set(finished.values()) == {1} and len(finished) == studies * COUNT
        assert not [run for run in runs if run.info.status == "RUNNING"]
        versions = client.search_model_versions("name = 'seqto-chain-cpu-static'")
        assert len({each.run_id for each in versions}) == len(versions)


def ended(process: Forked) -> tuple[int, str]:
    out, err = process.communicate(timeout=500)
    assert "Traceback" not in err and "unexpected" not in err, err
    return process.returncode, out + err


def test_two_at_once_on_no_store_at_all(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    processes = [place.start(cache) for cache in ("one", "two")]
    both = [ended(each) for each in processes]
    assert min(code for code, _ in both) == 0, both
    for (code, said), other in zip(both, reversed(processes), strict=True):
        # Who came too late to be refused found it finished.
        assert code == 0 or "is running this very study" in said, said
        assert code == 0 or f"process {other.pid}, since" in said, "it says who"
    place.check()


def test_two_studies_at_once_on_no_store_at_all(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    processes = [place.start("one"), place.start("two", "sensitivity.samples=5")]
    for code, said in [ended(each) for each in processes]:
        assert code == 0, said
    place.check(studies=2)


def test_second_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    first = place.start("one")
    place.wait_for(3)
    first.send_signal(signal.SIGKILL)
    code, said = ended(place.start("two"))
    first.communicate()
    assert code == 0 and "were measured before and not run again" in said
    place.check()


def test_same_study_elsewhere_is_another_one(tmp_path: Path) -> None:
    places = [Place(tmp_path / name) for name in ("here", "there")]
    processes = [place.start("shared") for place in places]
    for code, said in [ended(each) for each in processes]:
        assert code == 0, said
    for place in places:
        place.check()
