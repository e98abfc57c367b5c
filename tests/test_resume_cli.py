"""Studies from the command line, in processes of their own: killed, resumed, spread, multiplied."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import Command
from forked_commands import Forked, Whole
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from tiny_studies import Lab, chain

from seqto.datasets.digits import DigitsDataset
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.tracking.memory import MemoryTracker

pytestmark = pytest.mark.slow

STUDY = (
    *("model=local", "model.path=chain.onnx", "dataset.evaluation_size=200"),
    *(
        "search=ladder",
        "sensitivity=paper",
        "sensitivity.samples=4",
        "device.warmup=0",
        "device.repeats=1",
    ),
)
STOPPED = "The same command goes on where it stopped"
COUNT = 14
"""Candidates of the ladder over twelve convolutions and a dense layer."""


@dataclass(frozen=True)
class Place:
    """A folder with a model, an empty store and nothing else."""

    folder: Path
    cache: Path

    def start(self, *arguments: str) -> Forked | Whole:
        """Start `python -m seqto` there."""
        surroundings = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        own = {
            "SEQTO_CACHE": str(self.cache),
            "COLUMNS": "200",
        }
        kind = Whole if "hydra/launcher=joblib" in arguments else Forked
        return kind(["seqto", *arguments], self.folder, {**surroundings, **own})

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run `python -m seqto` there to its end, which has to be this, and return what it said."""
        return ended(self.start(*arguments), code)

    @contextlib.contextmanager
    def interrupted(self, number: signal.Signals) -> Iterator[Forked | Whole]:
        """Yield a study to which this signal was sent half-way."""
        process = self.start(*STUDY, "-m")
        try:
            self._wait_for(3, process)
            process.send_signal(number)
            yield process
        finally:
            process.kill()
            process.wait()

    def _wait_for(self, finished: int, process: Forked | Whole) -> None:
        """Wait until so many candidates are finished, without disturbing who writes them."""
        store = f"file:{self.folder}/mlflow.db?mode=ro"
        question = (
            "select count(*) from runs join tags on runs.run_uuid = tags.run_uuid "
            "where runs.status = 'FINISHED' and tags.key = 'seqto.index'"
        )
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with contextlib.closing(sqlite3.connect(store, uri=True)) as connection:
                if connection.execute(question).fetchone()[0] >= finished:
                    return
            assert process.poll() is None, process.communicate()
            time.sleep(0.03)
        raise AssertionError("no candidate was finished in time")

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(f"sqlite:///{self.folder}/mlflow.db")

    def runs(self, kind: str) -> list[Run]:
        """Return the runs of this kind, the oldest first."""
        experiment = self.client.get_experiment_by_name("seqto").experiment_id
        condition = f"tags.`seqto.kind` = '{kind}'"
        order = ["attributes.start_time ASC"]
        return list(self.client.search_runs([experiment], condition, order_by=order))

    def study(self) -> Run:
        """Return the run of the only study."""
        (run,) = self.runs("study")
        return run

    def finished(self) -> dict[str, int]:
        """Return the numbers of the finished candidates by run."""
        return {
            run.info.run_id: int(run.data.tags["seqto.index"])
            for run in self.runs("candidate")
            if run.info.status == "FINISHED"
        }

    def statuses(self) -> Counter[str]:
        """Return how many runs of any kind are in each state."""
        return Counter(run.info.status for kind in KINDS for run in self.runs(kind))

    def front(self) -> list[object]:
        """Return the front as it is marked, and what is registered; no latencies."""
        members = sorted(
            (
                int(run.data.tags["seqto.rank"]),
                int(run.data.tags["seqto.index"]),
                run.data.tags["seqto.sha256"],
                run.data.tags["seqto.recommended"],
                run.data.metrics["accuracy_loss"],
                run.data.metrics["size_bytes"],
            )
            for run in self.runs("candidate")
            if run.data.tags["seqto.pareto"] == "true"
        )
        indexes = self.finished()
        model = self.client.get_registered_model("seqto-chain-cpu-static")
        versions = {
            alias: indexes[self.client.get_model_version(model.name, version).run_id]
            for alias, version in model.aliases.items()
        }
        return [members, versions, self.study().data.metrics["hypervolume"]]


KINDS = ("study", "candidate")


def ended(process: Forked | Whole, code: int) -> tuple[str, str]:
    """Wait for the end of this process, which has to be this, and return what it said."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out + err
    assert "Traceback" not in err, err
    return out, err


@pytest.fixture(scope="module")
def make_place(
    tmp_path_factory: pytest.TempPathFactory,
    migrated_store: Path,
) -> Callable[[], Place]:
    """Return what makes places; they share a cache, as those of a user do."""
    cache = tmp_path_factory.mktemp("cache")

    def make() -> Place:
        folder = tmp_path_factory.mktemp("place")
        shutil.copy(migrated_store, folder / "mlflow.db")
        (folder / "chain.onnx").write_bytes(chain(12).to_bytes())
        return Place(folder, cache)

    return make


@pytest.fixture
def place(make_place: Callable[[], Place]) -> Place:
    """Return a place of the test's own."""
    return make_place()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """Return the front as plain Python finds it, in one go."""
    parts = {
        "dataset": DigitsDataset(evaluation_size=200),
        "device": OnnxRuntimeDevice(warmup=0, repeats=1),
    }
    outcome = Lab.at(tmp_path_factory.mktemp("lab"), chain(12), **parts).run(MemoryTracker())
    front = outcome.front
    assert 2 <= len(front.members) < COUNT == outcome.measured, "or it is no test of a front"
    members = [
        (
            rank,
            trial.index,
            trial.model_sha256,
            ",".join(front.aliases(trial)),
            trial.metrics["accuracy_loss"],
            trial.metrics["size_bytes"],
        )
        for rank, trial in enumerate(front.members, 1)
    ]
    registered = {each.alias: each.trial.index for each in front.recommended}
    return [members, registered, front.hypervolume]


def test_killed_study_goes_on_where_it_stopped(place: Place, undisturbed: list[object]) -> None:
    with place.interrupted(signal.SIGKILL) as process:
        process.wait()
    before = place.finished()
    assert 3 <= len(before) < COUNT, "or it was not killed half-way"
    assert place.study().info.status == "RUNNING", "nobody was left to say otherwise"
    out, _ = place.run(*STUDY, "-m")
    assert f"{len(before)} of {COUNT} candidates were measured before" in out
    after = place.finished()
    assert after.items() >= before.items()
    assert sorted(after.values()) == list(range(COUNT)), "none was finished twice"
    assert place.study().info.status == "FINISHED"
    assert set(place.statuses()) <= {"FINISHED", "KILLED"}
    assert place.front() == undisturbed


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, STOPPED), (signal.SIGTERM, 143, STOPPED)],
)
def test_study_that_is_asked_to_stop_says_so(
    place: Place, number: signal.Signals, code: int, message: str
) -> None:
    with place.interrupted(number) as process:
        _, err = ended(process, code)
    assert message in err
    assert 3 <= len(place.finished()) < COUNT, "or it was not stopped half-way"
    assert place.study().info.status == "KILLED"
    assert "RUNNING" not in place.statuses()
    assert "front_size" not in place.study().data.metrics


def test_launcher_with_processes_gives_the_same_front(
    place: Place, undisturbed: list[object]
) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs seqto[joblib]")
    place.run(*STUDY, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "-m")
    assert sorted(place.finished().values()) == list(range(COUNT))
    assert place.front() == undisturbed
    jobs = [path for path in place.folder.glob("multirun/*/*/*") if path.name.isdigit()]
    assert len(jobs) == 2, "these candidates take but a moment: several go into one job"


def test_commas_multiply_into_studies_and_one_that_fails_stops_no_other(
    seqto: Command, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "chain.onnx").write_bytes(chain(3).to_bytes())
    grid = (
        "model.path=none.onnx,chain.onnx",
        "quantization=static,dynamic",
        "search.step=4",
    )
    result = seqto(*STUDY, *grid, "-m")
    assert result.code == 1
    assert "study 4 of 4" in result.out
    assert result.err.count("none.onnx does not exist") == 2
    assert result.err.strip().endswith("2 of 4 studies failed; see above.")
    studies = [
        (run.data.tags["seqto.quantization"], run.info.status)
        for run in Place(tmp_path, cache).runs("study")
    ]
    assert studies == [("static", "FINISHED"), ("dynamic", "FINISHED")]
