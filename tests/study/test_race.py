"""Which of the shortlisted candidates are still worth an evaluation."""

import pytest

from seqto.study.race import Race
from seqto.types import Candidate, Trial, TrialState

CANDIDATES = [Candidate.of({"a": "int8", "b": each}) for each in ("int4", "int8", "float16")]
SIZES = dict(zip(CANDIDATES, (100.0, 200.0, 400.0), strict=True))


def trial(index: int, loss: float, size: float, state: TrialState = TrialState.COMPLETE) -> Trial:
    metrics = {"accuracy_loss": loss, "size_bytes": size}
    return Trial("", index, CANDIDATES[index], state, metrics)


def test_what_is_larger_than_one_that_loses_nothing_is_not_evaluated() -> None:
    race = Race(CANDIDATES, SIZES)
    assert race.ask(1) == CANDIDATES[:1]
    race.tell(trial(0, 0.0, 100.0))
    assert race.ask(8) == [] and race.remaining() == 0
    assert race.dropped == tuple(CANDIDATES[1:]) and race.evaluated == CANDIDATES[:1]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(trial(0, 0.003, 100.0), id="loses something"),
        pytest.param(trial(0, 0.0, 395.0), id="about as large as the largest"),
        pytest.param(Trial("", 0, CANDIDATES[0], TrialState.FAILED), id="failed"),
    ],
)
def test_others_are_evaluated(told: Trial) -> None:
    race = Race(CANDIDATES, SIZES)
    assert race.ask(2) == CANDIDATES[:2]
    race.tell(told)
    assert race.ask(8) == CANDIDATES[2:] and not race.dropped


def test_nothing_is_dropped_without_sizes() -> None:
    race = Race(CANDIDATES)
    assert race.ask(1) == CANDIDATES[:1]
    race.tell(trial(0, 0.0, 1.0))
    assert race.ask(8) == CANDIDATES[1:]
