"""Candidates that were lost with their device."""

import pytest

from seqto.pareto.lost import lost, lost_in_words
from seqto.types import Candidate, Trial, TrialState

LAYERS = ["a", "b", "c"]


def trial(index: int, failure: str = "", excluded: int | None = None) -> Trial:
    left = index if excluded is None else excluded
    state = TrialState.FAILED if failure else TrialState.COMPLETE
    candidate = Candidate.excluding(LAYERS, LAYERS[:left])
    return Trial(str(index), index, candidate, state, failure=failure)


@pytest.mark.parametrize("kind", ["DeviceTransportError", "DeviceUnreachableError"])
def test_lost_ones_are_counted_with_the_reason(kind: str) -> None:
    trials = [trial(0), trial(1, f"{kind}: board was lost 5 times.")]
    assert [each.index for each in lost(trials)] == [1]
    words = lost_in_words(trials)
    assert words.startswith("1 of 2 candidates was not measured")
    assert "(board was lost 5 times)" in words and "The same command" in words


@pytest.mark.parametrize("failure", ["DeviceRunError: no", "NotFiniteError: nan", "KeyError: 1"])
def test_what_failed_by_itself_is_not_lost(failure: str) -> None:
    assert not lost([trial(0), trial(1, failure)])
    assert lost_in_words([trial(0), trial(1, failure)]) == ""


def test_what_was_measured_later_is_not_lost() -> None:
    assert not lost([trial(0), trial(1, "DeviceTransportError: no"), trial(2, excluded=1)])


def test_a_candidate_that_was_lost_twice_counts_once() -> None:
    gone = [trial(index, "DeviceTransportError: no", excluded=1) for index in (1, 2)]
    assert len(lost([trial(0), *gone])) == 1
    assert lost_in_words([trial(0), *gone]).startswith("1 of 2 candidates")
