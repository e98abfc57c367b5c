"""A study whose candidates are stopped once they cannot be on its front."""

from collections.abc import Iterator

import pytest
from tiny_studies import Lab

from seqto.measuring.pool import Pool
from seqto.pareto.limits import Gate
from seqto.search.budget import BudgetSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study import explore
from seqto.study.run import Outcome, run_study
from seqto.tracking.memory import MemoryTracker
from seqto.types import Candidate, TrialState

PRECISIONS = ("coded", "int8", "float16", "float32")

STEPS = ("coded_0.5", "coded_0.25", "coded_0.125", "coded_0.06")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(
        tmp_path_factory.mktemp("lab"),
        sensitivity=DivergenceSensitivity(samples=4, precisions=list(PRECISIONS)),
        search=BudgetSearch(budgets=6, screens=4),
        precisions=PRECISIONS,
    )


@pytest.fixture(scope="module", autouse=True)
def listed(lab: Lab) -> Iterator[list[Candidate]]:
    """Have candidates evaluated that the screen would hardly list: finer ones that are spoiled."""
    names = lab.subject.layer_names
    fine = [dict.fromkeys(names, step) for step in STEPS]
    spoiled = [{**each, names[0]: "coded_2"} for each in fine[1:]]
    candidates = [*map(Candidate.of, [*fine, *spoiled])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore, "shortlist", lambda _, full, *others: [*full, *candidates])
        yield candidates


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
def test_who_is_stopped_is_not_on_the_front(
    lab: Lab, listed: list[Candidate], whole: Outcome, count: int
) -> None:
    outcome = run(lab, MemoryTracker(), count)
    stopped = [each for each in outcome.record.trials if each.state is TrialState.STOPPED]
    assert {each.candidate for each in stopped} >= set(listed[-2:])
    losses = {each.candidate: each.metrics["accuracy_loss"] for each in whole.record.trials}
    # What was listed; others take the places of those that were stopped.
    for trial in (each for each in stopped if each.candidate in losses):
        assert "accuracy_loss" not in trial.metrics and not trial.losses
        low, high = trial.metrics["accuracy_loss_low"], trial.metrics["accuracy_loss_high"]
        assert low <= losses[trial.candidate] <= high
        assert trial not in outcome.front.members
    # The front of all that was measured in full is the same.
    known = {tuple(each) for each in points(outcome)}
    measured = [each for each in outcome.record.trials if each.state is TrialState.COMPLETE]
    best = [
        (each.metrics["accuracy_loss"], each.metrics["size_bytes"])
        for each in (*whole.record.trials, *measured)
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
