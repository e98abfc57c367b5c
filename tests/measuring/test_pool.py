"""Candidates measured side by side."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_studies import CONFIG, BlindQuantizer, Lab, ProbedDevice

from seqto.measuring import pool as module
from seqto.measuring.pool import Pool, usable_cores
from seqto.measuring.record import Assignment
from seqto.study.run import Outcome, run_study
from seqto.tracking.memory import MemoryTracker
from seqto.types import FLOAT32, Candidate, Model, Trial, TrialState

COUNT = 7
"""Candidates of the ladder over the chain's six layers."""


class HarmfulDevice(ProbedDevice):
    """A CPU on which a model with this many quantized layers does something else than to run."""

    def __init__(self, layers: int, harm: Callable[[], None]) -> None:
        super().__init__()
        self._layers, self._harm = layers, harm

    def load(self, model: Model):  # type: ignore[no-untyped-def]
        """Return the model ready to run."""
        kernels = self.kernels(model).values()
        quantized = {each.name for each in kernels if each.op_type in ("QLinearConv", "QGemm")}
        if len(quantized) == self._layers:
            self._harm()
        return super().load(model)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"))


def run(lab: Lab, count: int, tracker: MemoryTracker | None = None, **options: object) -> Outcome:
    """Run the study with so many workers."""
    tracker = tracker or MemoryTracker()
    watch = options.pop("watch", lambda trial, done, total: None)
    with Pool(lab.parts, lab.subject, tracker, count) as pool:
        study = lab.study(tracker, batch=pool.batch, **options)
        return run_study(study, pool.launch, watch, lambda record, front: [], CONFIG)  # type: ignore[arg-type]


def figures(trial: Trial) -> dict[str, float]:
    """Return what does not depend on the moment."""
    return {
        name: each
        for name, each in trial.metrics.items()
        if not name.startswith(("latency", "load"))
    }


@pytest.fixture(scope="module")
def alone(lab: Lab) -> Outcome:
    """Return how the study ends in this process."""
    return run(lab, 1)


@pytest.mark.parametrize("count", [2, 3])
def test_results_do_not_depend_on_the_number_of_workers(
    lab: Lab, alone: Outcome, count: int
) -> None:
    outcome = run(lab, count)
    for one, other in zip(alone.record.trials, outcome.record.trials, strict=True):
        assert (one.index, one.candidate, one.state) == (other.index, other.candidate, other.state)
        assert one.model_sha256 == other.model_sha256
        assert figures(one) == figures(other)
    assert outcome.front.hypervolume == alone.front.hypervolume


def test_results_are_those_of_a_launcher(lab: Lab, alone: Outcome) -> None:
    launched = lab.run(MemoryTracker())
    assert list(map(figures, launched.record.trials)) == list(map(figures, alone.record.trials))


@pytest.mark.parametrize("count", [1, 2])
def test_trials_are_told_one_by_one_and_in_order(lab: Lab, count: int) -> None:
    seen: list[tuple[int, int]] = []
    run(lab, count, watch=lambda trial, done, total: seen.append((trial.index, done)))
    assert seen == [(index, index + 1) for index in range(COUNT)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_candidate_that_fails_fails_alone(tmp_path: Path, count: int) -> None:
    def fail() -> None:
        raise RuntimeError("it broke")

    lab = Lab.at(tmp_path, device=HarmfulDevice(3, fail))
    states = [trial.state for trial in run(lab, count).record.trials]
    assert states.count(TrialState.FAILED) == 1
    (failed,) = (t for t in run(lab, count).record.trials if t.state is TrialState.FAILED)
    assert failed.failure == "RuntimeError: it broke"


def test_a_crash_ends_the_candidate_and_not_the_study(tmp_path: Path) -> None:
    def crash() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    lab = Lab.at(tmp_path, device=HarmfulDevice(3, crash))
    trials = run(lab, 2).record.trials
    assert [trial.index for trial in trials] == list(range(COUNT))
    (failed,) = (trial for trial in trials if trial.state is TrialState.FAILED)
    assert failed.failure.startswith("Crash: its process ended; device.isolated=true")
    assert len(failed.candidate.by_precision()[FLOAT32]) == COUNT - 1 - 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_duplicate_has_the_figures_of_the_first(lab: Lab, alone: Outcome, count: int) -> None:
    ignored = alone.record.scores[2].layer.name
    blind = lab.with_parts(quantizer=BlindQuantizer(lab.parts.quantizer, ignored))
    trials = run(blind, count).record.trials
    assert [trial.duplicate_of for trial in trials] == [None, None, None, 2, None, None, None]
    assert trials[3].metrics == trials[2].metrics


@pytest.mark.parametrize("count", [1, 2])
def test_interrupted_trials_are_killed_and_so_are_the_processes(lab: Lab, count: int) -> None:
    tracker, before = MemoryTracker(), children()

    def interrupt(trial: Trial, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(lab, count, tracker, watch=interrupt)
    (held,) = tracker.studies.values()
    states = {tracker.trial(each).state for each in held.trials}
    assert TrialState.RUNNING not in states
    wait_until(lambda: children() <= before)
    again = run(lab, count, tracker)
    assert again.measured == COUNT - 2


def test_what_is_known_of_a_model_is_not_sent_and_comes_back(lab: Lab) -> None:
    tracker = MemoryTracker()
    names = lab.subject.layer_names
    candidate = Candidate.excluding(names, names[:1])
    with Pool(lab.parts, lab.subject, tracker, 2) as pool:
        # Without a study nobody looks for an earlier trial of the same model.
        (first,) = pool.launch(None, [Assignment(0, candidate)])
        (again,) = pool.launch(None, [Assignment(1, candidate)])
    one, other = tracker.trial(first), tracker.trial(again)
    assert one.metrics and one.losses
    assert (other.metrics, other.losses) == (one.metrics, one.losses)


def test_cores_are_counted() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def children() -> set[int]:
    """Return the processes whose parent this one is, and that have not ended."""

    def found() -> Iterator[int]:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = path.read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid() and state != "Z":
                yield int(path.parent.name)

    return set(found())


def wait_until(done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_measured_models_are_kept_as_far_as_there_is_room(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [Assignment(at, each.candidate) for at, each in enumerate(run(lab, 1).record.trials)]
    sizes = {}
    for room in (2**26, 40_000):
        monkeypatch.setattr(module, "_KEPT_BYTES", room)
        for count in (1, 2):
            with Pool(lab.parts, lab.subject, MemoryTracker(), count) as pool:
                list(pool.launch(None, some))
            sizes[room, count] = [each.size for each in pool.models.values()]
            assert all(name == each.digest for name, each in pool.models.items())
    assert len(sizes[2**26, 1]) == len(sizes[2**26, 2]) == COUNT
    assert 0 < sum(sizes[40_000, 1]) <= 40_000 < sum(sizes[2**26, 1])


def test_new_processes_follow_those_that_measured_a_single_candidate(lab: Lab) -> None:
    tracker = MemoryTracker()
    trials = run(lab, 1).record.trials
    with Pool(lab.parts, lab.subject, tracker, 2) as pool:
        list(pool.launch(None, [Assignment(0, trials[0].candidate)]))
        # What this process learns from here on, they inherit.
        assert pool._processes is None
        list(pool.launch(None, [Assignment(at, trials[at].candidate) for at in (1, 2)]))
        assert pool._processes is not None
