"""Trials are recorded whole, also where a signal comes in between."""

import os
import signal

import pytest
from suite_trackers import PLAN

from seqto.measuring.batch import Attempt
from seqto.measuring.record import Assignment, Recorder, Yardstick
from seqto.tracking.memory import MemoryTracker
from seqto.types import Candidate, Measurement, TrialState


class Interrupted(MemoryTracker):
    """A tracker in which Ctrl-C comes as soon as a trial is finished."""

    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Finish the trial, then be interrupted."""
        super().finish_trial(trial, measurement, duplicate_of)
        os.kill(os.getpid(), signal.SIGINT)


def test_trial_that_is_finished_stays_so_when_interrupted() -> None:
    tracker = Interrupted()
    recorder = Recorder(tracker, tracker.open_study(PLAN, True), "cpu")
    first, second = (
        Assignment(at, Candidate.excluding("ab", each)) for at, each in enumerate("ab")
    )
    with pytest.raises(KeyboardInterrupt), recorder.open_trials():
        trials = [recorder.start(each) for each in (first, second)]
        recorder.end(trials[0], first, Attempt(Measurement({"size_bytes": 1.0}, "sha")))
    assert [tracker.trial(each).state for each in trials] == [
        TrialState.COMPLETE,
        TrialState.KILLED,
    ]


def test_of_two_that_are_the_same_model_the_first_counts_in_whatever_order_they_end() -> None:
    tracker = MemoryTracker()
    recorder = Recorder(tracker, tracker.open_study(PLAN, True), "cpu")
    first, second = (
        Assignment(at, Candidate.excluding("ab", each)) for at, each in enumerate("ab")
    )
    trials = {each: recorder.start(each) for each in (first, second)}
    for each, size in ((second, 1.0), (first, 2.0)):
        recorder.end(trials[each], each, Attempt(Measurement({"size_bytes": size}, "sha")))
    earlier, later = (tracker.trial(trials[each]) for each in (first, second))
    assert earlier.duplicate_of is None and later.duplicate_of == first.index
    assert earlier.metrics == later.metrics == {"size_bytes": 1.0}


def test_latencies_are_shares_of_the_studys_float_model() -> None:
    tracker = MemoryTracker()
    study = tracker.open_study(PLAN, True)
    recorder = Recorder(tracker, study, "cpu", yardstick=Yardstick(float_ms=10.0))
    figures = {"latency_ms": 15.0, "latency_p10_ms": 12.0, "latency_p90_ms": 18.0}
    found = []
    # In the turns of the first, the machine was half as fast; the second had none.
    for at, float_ms in enumerate((20.0, None)):
        assignment = Assignment(at, Candidate.excluding("ab", "ab"[at]))
        trial = recorder.start(assignment)
        measured = Measurement({**figures, "load_ms": 3.0}, f"sha{at}", float_ms=float_ms)
        recorder.end(trial, assignment, Attempt(measured))
        found.append(dict(tracker.trial(trial).metrics))
    halved = {name: each / 2 for name, each in figures.items()}
    assert found == [{**halved, "load_ms": 3.0}, {**figures, "load_ms": 3.0}]
