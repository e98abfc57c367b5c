"""Budgets that are added where what was measured leaves a gap."""

from collections.abc import Callable

import pytest

from seqto.search.budget import BudgetSearch
from seqto.types import FLOAT32, Candidate, Layer, LayerScore, Trial, TrialState


@pytest.fixture
def scores() -> list[LayerScore]:
    """Return layers that hold more and more, with the harms of four steps."""
    steps = {"coded_1": 2, "coded_0.5": 3, "coded_0.25": 4, "coded_0.125": 5}
    return [
        LayerScore(
            Layer(f"layer{at}", "Conv", 4 * 2**at, position=at),
            1.0 - at / 20,
            costs={name: 2**at * 1e-4 * 4.0**-bits for name, bits in steps.items()},
            sizes={name: 2**at * bits // 8 for name, bits in steps.items()} | {FLOAT32: 4 * 2**at},
        )
        for at in range(4, 16)
    ]


def measured(
    search: BudgetSearch, scores: list[LayerScore], harm: Callable[[float], float]
) -> list[tuple[float, float]]:
    """Return the sizes and harms of all that the search asks for, with harms of their size."""
    sizes = {(each.layer.name, name): size for each in scores for name, size in each.sizes.items()}
    search.start(scores)
    found = []
    while asked := search.ask(1):
        (candidate,) = asked
        size = sum(sizes[pair] for pair in candidate.precisions)
        found.append((size, 0.0 if candidate.is_float else harm(size)))
        metrics = {"divergence": found[-1][1], "size_bytes": size}
        search.tell(Trial("", len(found), candidate, TrialState.COMPLETE, metrics))
    return found


def falling(size: float) -> float:
    """A harm that falls evenly."""
    return float(2.0 ** (-size / 4000))


def collapsing(size: float) -> float:
    """A harm that falls by a thousand times at one size."""
    return 0.3 if size < 22_000 else 0.0003


def test_nothing_is_added_where_harm_falls_evenly(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned = search.remaining()
    assert len(measured(search, scores, falling)) == planned


def test_where_harm_falls_at_once_budgets_are_added_there(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned = search.remaining()
    found = measured(search, scores, collapsing)
    added = [size for size, _ in found[planned:]]
    assert 2 <= len(added) <= 3
    below = max(size for size, harm in found[:planned] if harm > 0.1)
    above = min(size for size, harm in found[:planned] if harm < 0.1)
    # Each halves what is left of the gap.
    assert all(below < size < above for size in added)
    assert len(set(added)) == len(added)


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.KILLED])
def test_what_failed_makes_no_gap(scores: list[LayerScore], state: TrialState) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned: list[Candidate] = search.ask(100)
    for at, candidate in enumerate(planned):
        search.tell(Trial("", at, candidate, state))
    assert search.ask(100) == [] and search.remaining() == 0


def test_a_new_start_forgets_what_was_measured(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    first = measured(search, scores, collapsing)
    assert measured(search, scores, collapsing) == first
