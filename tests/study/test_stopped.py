"""A study whose candidates are stopped once they cannot be on its front."""

import pytest
from tiny_studies import Lab

from seqto.measuring.pool import Pool
from seqto.pareto.limits import Gate
from seqto.search.budget import BudgetSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.run import Outcome, run_study
from seqto.tracking.memory import MemoryTracker
from seqto.types import TrialState

PRECISIONS = ("coded", "int8", "float16", "float32")
"""Full int8 is larger here than coded weights that lose as little."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(
        tmp_path_factory.mktemp("lab"),
        sensitivity=DivergenceSensitivity(samples=4, precisions=list(PRECISIONS)),
        search=BudgetSearch(budgets=20, evaluations=14, screens=4),
        precisions=PRECISIONS,
    )


def run(lab: Lab, tracker: MemoryTracker, count: int = 1, **settings: object) -> Outcome:
    pool = Pool(lab.parts, lab.subject, tracker, count)
    study = lab.study(tracker, register_models=False, batch=pool.batch, **settings)
    with pool:
        return run_study(study, pool.launch, lambda *_: None, lambda *_: [], "")


def points(outcome: Outcome) -> list[tuple[float, float]]:
    names = ("accuracy_loss", "size_bytes")
    return [(each.metrics[names[0]], each.metrics[names[1]]) for each in outcome.front.members]


@pytest.fixture(scope="module")
def whole(lab: Lab) -> Outcome:
    """Return the study in which nobody is stopped: a gate wants to know all of every candidate."""
    outcome = run(lab, MemoryTracker(), gate=Gate(max_accuracy_loss=1.0))
    assert all(each.state is TrialState.COMPLETE for each in outcome.record.trials)
    return outcome


@pytest.mark.parametrize("count", [1, 2])
def test_who_is_stopped_is_not_on_the_front(lab: Lab, whole: Outcome, count: int) -> None:
    outcome = run(lab, MemoryTracker(), count)
    stopped = [each for each in outcome.record.trials if each.state is TrialState.STOPPED]
    assert stopped, "or this is no test"
    losses = {each.candidate: each.metrics["accuracy_loss"] for each in whole.record.trials}
    for trial in stopped:
        assert "accuracy_loss" not in trial.metrics and not trial.losses
        low, high = trial.metrics["accuracy_loss_low"], trial.metrics["accuracy_loss_high"]
        assert low <= losses[trial.candidate] <= high
        assert trial not in outcome.front.members
    # The front of all that was measured in full is the same.
    known = {tuple(each) for each in points(outcome)}
    best = [
        (each.metrics["accuracy_loss"], each.metrics["size_bytes"]) for each in whole.record.trials
    ]
    front = {
        one for one in best if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in best)
    }
    assert known == front


def test_who_was_stopped_is_not_measured_again(lab: Lab) -> None:
    tracker = MemoryTracker()
    first = run(lab, tracker)
    again = run(lab, tracker)
    assert again.measured == 0 < first.measured
    assert points(again) == points(first)
