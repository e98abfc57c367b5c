"""The paper's strategy."""

import itertools
from typing import Any

import pytest
from pydantic import ValidationError
from suite_searches import GROUPED, LAYERS, RANKING, SearchSuite, candidates, climb, told

from seqto.search.ladder import LadderSearch


class TestLadder(SearchSuite):
    """The conformance suite."""

    @pytest.fixture
    def search(self) -> LadderSearch:
        """Return the default."""
        return LadderSearch()


class TestLadderWithLimits(SearchSuite):
    """The conformance suite, with every option set."""

    @pytest.fixture
    def search(self) -> LadderSearch:
        """Return a random ladder that may stop early."""
        return LadderSearch(order="random", seed=3, step=2, maximum=5, stop_at_loss=0.1)


def added(search: LadderSearch) -> list[str]:
    """Return which layer each candidate excludes more than the one before."""
    tried = [set(each.excluded) for each in candidates(search)]
    steps = [after - before for before, after in itertools.pairwise(tried)]
    assert all(len(step) == 1 for step in steps)
    return [name for step in steps for name in step]


def test_from_fully_quantized_to_float_one_layer_at_a_time() -> None:
    assert climb(LadderSearch()) == [0, 1, 2, 3, 4, 5, 6]


def test_ranked_excludes_the_most_hurt_first() -> None:
    assert added(LadderSearch()) == list(LAYERS)


def test_reversed_excludes_the_least_hurt_first() -> None:
    assert added(LadderSearch(order="reversed")) == list(LAYERS)[::-1]


def test_random_order_is_that_of_the_seed() -> None:
    first, again, other = (added(LadderSearch(order="random", seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == sorted(LAYERS)
    assert list(LAYERS) not in (first, other)


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ({"step": 2}, [0, 2, 4, 6]),
        # The last rung is the float model, whatever the step.
        ({"step": 4}, [0, 4, 6]),
        ({"step": 100}, [0, 6]),
        ({"maximum": 0}, [0]),
        ({"maximum": 2}, [0, 1, 2]),
        ({"maximum": 5, "step": 2}, [0, 2, 4, 5]),
        ({"maximum": 100}, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_step_and_maximum_choose_the_rungs(options: dict[str, Any], excluded: list[int]) -> None:
    assert climb(LadderSearch(**options)) == excluded


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ({}, ["", "f", "bef", "bdef", "abcdef"]),
        ({"order": "reversed"}, ["", "ac", "acd", "abcde", "abcdef"]),
        ({"step": 3}, ["", "bdef", "abcdef"]),
        # Layers, not rungs: a group that does not fit as a whole stays quantized.
        ({"maximum": 3}, ["", "f", "bef"]),
        ({"maximum": 2}, ["", "f"]),
        ({"maximum": 5}, ["", "f", "bef", "bdef"]),
    ],
)
def test_groups_are_excluded_as_one_in_the_place_of_their_most_hurt_layer(
    options: dict[str, Any], excluded: list[str]
) -> None:
    tried = candidates(LadderSearch(**options), ranking=GROUPED)
    assert ["".join(candidate.excluded) for candidate in tried] == excluded


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_batches_climb_the_same_ladder(count: int) -> None:
    assert climb(LadderSearch(), count=count) == [0, 1, 2, 3, 4, 5, 6]


def test_remaining_is_known_before_the_first_question() -> None:
    search = LadderSearch(step=4)
    search.start(RANKING)
    assert search.remaining() == 3
    search.ask(2)
    assert search.remaining() == 1


@pytest.mark.parametrize("count", [1, 3, 50])
def test_it_stops_once_the_loss_is_low_enough(count: int) -> None:
    losses: list[float | None] = [0.3, 0.2, 0.02, 0.01, 0.0, 0.0, 0.0]
    assert climb(LadderSearch(stop_at_loss=0.015), losses, count) == [0, 1, 2, 3]


def test_a_loss_of_exactly_the_limit_is_low_enough() -> None:
    losses: list[float | None] = [0.3, 0.02, 3 / 300, 0.0, 0.0, 0.0, 0.0]
    search = LadderSearch(stop_at_loss=0.01)
    assert climb(search, losses) == [0, 1, 2]
    assert search.remaining() == 0


def test_a_limit_of_nothing_lost_can_be_met() -> None:
    losses: list[float | None] = [0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert climb(LadderSearch(stop_at_loss=0), losses) == [0, 1]


def test_a_limit_that_is_never_met_climbs_to_the_top() -> None:
    assert climb(LadderSearch(stop_at_loss=0.1)) == [0, 1, 2, 3, 4, 5, 6]


def test_failures_meet_no_limit() -> None:
    losses: list[float | None] = [0.3, None, None, 0.0, 0.0, 0.0, 0.0]
    assert climb(LadderSearch(stop_at_loss=0.1), losses) == [0, 1, 2, 3]


def test_once_stopped_it_stays_so() -> None:
    search = LadderSearch(stop_at_loss=0.1)
    search.start(RANKING)
    (candidate,) = search.ask(1)
    search.tell(told(0, candidate, 0.1))
    # Told late, as when two processes end out of order.
    search.tell(told(1, candidate, 0.5))
    assert search.ask(1) == []
    assert search.remaining() == 0


def test_nothing_is_asked_for_before_the_start() -> None:
    assert LadderSearch().ask(3) == []


@pytest.mark.parametrize(
    "wrong",
    [{"order": "sorted"}, {"step": 0}, {"maximum": -1}, {"stop_at_loss": 1.5}, {"steps": 2}],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        LadderSearch(**wrong)
