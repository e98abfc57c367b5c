"""Choices that begin alike, against what they cost."""

import numpy as np
import pytest

from seqto.search.alike import begun_alike
from seqto.search.budget import solutions
from seqto.search.options import Menu
from seqto.types import FLOAT32, Layer, LayerScore

STEPS = {"coded_1": 1.0, "coded_0.5": 0.5, "coded_0.25": 0.25, "coded_0.125": 0.125}
BITS = dict(zip(STEPS, (2, 3, 4, 5), strict=True))


def menu_of(weights: list[int], order: list[int] | None = None) -> Menu:
    """Return layers of so many weights, ranked in another order than they are in the graph."""
    draw = np.random.default_rng(0)
    scores = []
    for at, count in enumerate(weights):
        harm = float(draw.lognormal()) * 1e-6 * count
        scores.append(
            LayerScore(
                Layer(f"layer{at}", "Conv", 4 * count, position=at),
                1.0 - at / len(weights),
                costs={name: harm * step**2 for name, step in STEPS.items()},
                sizes={name: count * bits // 8 for name, bits in BITS.items()}
                | {FLOAT32: 4 * count},
            )
        )
    return Menu([scores[at] for at in order or range(len(scores))])


def shared(menu: Menu, one: list[int], other: list[int]) -> int:
    """Return how many first layers of the graph have the same precision in both."""
    pairs = [dict(menu.candidate(each).precisions) for each in (one, other)]
    names = [f"layer{at}" for at in range(len(menu.layers))]
    differs = [at for at, name in enumerate(names) if pairs[0][name] != pairs[1][name]]
    return differs[0] if differs else len(names)


GROWING = [2**at for at in range(4, 16)]
"""Weights of layers that hold more and more, as those of most networks for images do."""


@pytest.mark.parametrize("order", [None, [3, 1, 0, 2, *range(4, 12)][::-1]])
def test_the_first_layers_of_the_graph_become_the_same(order: list[int] | None) -> None:
    menu = menu_of(GROWING, order)
    best = solutions(menu, 10)
    alike = begun_alike(menu, best, 0.01)
    # In each half of them; the float model is none of them.
    for run in (alike[1:5], alike[5:9]):
        assert min(shared(menu, run[0], each) for each in run[1:]) >= 4
    assert alike[0] == best[0], "the smallest stays"
    # They were not before.
    assert min(shared(menu, best[1], each) for each in best[2:9]) < 4


@pytest.mark.parametrize("price", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("weights", [GROWING, GROWING[::-1], [1000] * 3, [500, 20, 3000, 100, 7]])
def test_they_are_no_larger_than_the_price_allows(weights: list[int], price: float) -> None:
    menu = menu_of(weights)
    best = solutions(menu, 10)
    alike = begun_alike(menu, best, price)
    larger = [menu.bytes(a) / menu.bytes(b) - 1 for a, b in zip(alike, best, strict=True)]
    # Of each half on average.
    assert np.mean(larger[1:5]) <= price + 1e-9 and np.mean(larger[5:]) <= price + 1e-9


def test_a_higher_price_makes_more_layers_the_same() -> None:
    menu = menu_of(GROWING)
    best = solutions(menu, 10)
    lengths = []
    for price in (0.0, 0.001, 0.01, 0.1):
        alike = begun_alike(menu, best, price)
        lengths.append(shared(menu, alike[1], alike[2]))
    assert lengths == sorted(lengths) and lengths[-1] > lengths[0]


def test_the_float_model_stays_and_no_price_changes_nothing() -> None:
    menu = menu_of(GROWING)
    best = solutions(menu, 10)
    assert begun_alike(menu, best, 0.0) == best
    assert begun_alike(menu, best, 10.0)[-1] == menu.unchanged() == best[-1]


@pytest.mark.parametrize("count", [0, 1])
def test_one_choice_has_nobody_to_be_like(count: int) -> None:
    menu = menu_of(GROWING)
    few = solutions(menu, 10)[:count]
    assert begun_alike(menu, few, 0.1) == few


def test_equal_choices_are_left_alone() -> None:
    menu = menu_of(GROWING)
    same = [menu.smallest()] * 6
    assert begun_alike(menu, same, 0.05) == same
