"""Budgets that are added where what was measured leaves a gap."""

import itertools
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


def test_nothing_is_added_where_losses_are_near_and_small(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned = search.remaining()
    assert len(measured(search, scores, lambda _: 1e-4)) == planned


def test_what_still_loses_much_gets_larger_ones(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned = search.remaining()
    # A loss of 1 %, whatever the size.
    found = measured(search, scores, lambda _: 0.0025)
    *_, largest, whole = sorted(size for size, _ in found[:planned])
    added = [size for size, _ in found[planned:]]
    assert 1 <= len(added) <= 5 and added == sorted(added)
    for before, size in itertools.pairwise([largest, *added]):
        # Beginning as others do takes a little more.
        assert before < size <= 1.2 * before
    assert added[-1] < whole


def test_losses_of_neighbours_are_near_after_few_more(scores: list[LayerScore]) -> None:
    search = BudgetSearch(budgets=6)
    search.start(scores)
    planned = search.remaining()
    found = measured(search, scores, falling)
    assert planned < len(found) <= planned + 5

    def steps(points: list[tuple[float, float]]) -> list[float]:
        """Return how many times the likely losses fall, where there are steps in between."""
        losses = [
            min(max(0.2 * harm**0.5, 0.003), 0.15) for size, harm in sorted(points) if size < 41_000
        ]
        return [high / low for high, low in itertools.pairwise(losses)]

    before, after = steps(found[:planned]), steps(found)
    assert max(before) > 1.6 >= max(after)


def test_a_loss_that_is_foreseen_counts_more_than_its_harm(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned: list[Candidate] = search.ask(100)
    for at, candidate in enumerate(planned):
        # The harm falls at once, but the loss does not.
        metrics = {"divergence": 0.5 if at < 3 else 1e-6, "expected_loss": 0.003}
        search.tell(Trial("", at, candidate, TrialState.COMPLETE, metrics))
    assert search.ask(100) == []


def test_where_harm_falls_at_once_budgets_are_added_there(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned = search.remaining()
    found = measured(search, scores, collapsing)
    added = [size for size, _ in found[planned:]]
    assert 2 <= len(added) <= 5
    below = max(size for size, harm in found[:planned] if harm > 0.1)
    above = min(size for size, harm in found[:planned] if harm < 0.1)
    # Each halves what is left of the gap.
    assert all(below < size < above for size in added)
    assert len(set(added)) == len(added)
    # Close to where it falls nothing is to be gained.
    closest = min(b / a for a, b in itertools.pairwise(sorted({*added, below, above})))
    assert closest > 1.01


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.KILLED])
def test_what_failed_makes_no_gap(scores: list[LayerScore], state: TrialState) -> None:
    search = BudgetSearch()
    search.start(scores)
    planned: list[Candidate] = search.ask(100)
    for at, candidate in enumerate(planned):
        search.tell(Trial("", at, candidate, state))
    assert search.ask(100) == [] and search.remaining() == 0


def test_layers_whose_estimated_bytes_are_none_are_no_fault() -> None:
    # A bias in float16 may save more than the weights take.
    sizes = {"coded_1": -300.0, "coded_0.5": -200.0, "coded_0.25": 0.0, FLOAT32: 4000.0}
    costs = {"coded_1": 0.3, "coded_0.5": 0.1, "coded_0.25": 0.02}
    layer = Layer("dense", "Gemm", 4000, position=0)
    score = LayerScore(layer, 1.0, costs=costs, sizes=sizes)
    assert measured(BudgetSearch(), [score], falling)


def test_a_new_start_forgets_what_was_measured(scores: list[LayerScore]) -> None:
    search = BudgetSearch()
    first = measured(search, scores, collapsing)
    assert measured(search, scores, collapsing) == first


def test_what_is_added_begins_as_others_do(scores: list[LayerScore]) -> None:
    search = BudgetSearch(budgets=12)
    search.start(scores)
    planned: list[Candidate] = search.ask(100)
    for at, candidate in enumerate(planned):
        # The gap is between two that begin alike.
        metrics = {"divergence": 0.3 if at < 5 else 1e-5}
        search.tell(Trial("", at, candidate, TrialState.COMPLETE, metrics))
        # All were asked for at once: the first of them told nothing of gaps yet.
        assert bool(search.remaining()) == (at == len(planned) - 1)
    added = search.ask(1)
    # The first layers hold less than a twentieth of the bytes.
    first = [each.layer.name for each in scores[:7]]
    held = sum(each.sizes[FLOAT32] for each in scores)
    assert sum(each.sizes[FLOAT32] for each in scores[:7]) < 0.05 * held
    (begun,) = [[dict(each.precisions)[name] for name in first] for each in added]
    others = [[dict(each.precisions)[name] for name in first] for each in planned]
    assert others.count(begun) > 1
