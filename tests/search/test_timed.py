"""The integer program that knows latency, against every choice there is."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from seqto.search.budget import BudgetSearch
from seqto.search.options import Menu
from seqto.search.timed import TimedMenu, timed_solutions
from seqto.types import (
    FLOAT32,
    INT8,
    Goal,
    LatencyModel,
    Layer,
    LayerScore,
    Passage,
    Rates,
    TimedLayer,
    TimedOperation,
)

FLOAT16 = "float16"
GAP = 0.01
"""The solver's own, and what it gives for less harm."""

NAMES = ["a", "b", "c", "d", "e", "f"]
RATES, CHEAP = Rates(5e-7, 3e-7, 0.01), Rates(2e-8, 2e-8, 0.001)


def ranking(seed: int = 0) -> list[LayerScore]:
    draw = np.random.RandomState(seed)
    found = []
    for name in NAMES:
        harm, size = 0.01 * float(draw.lognormal()), int(draw.randint(1000, 9000))
        costs = {INT8: harm, FLOAT16: harm / 1000}
        sizes = {INT8: size // 4, FLOAT16: size // 2, FLOAT32: size}
        found.append(LayerScore(Layer(name, "Conv", size), 1.0, costs=costs, sizes=sizes))
    return found


def latency(seed: int = 0, rates: Rates = RATES) -> LatencyModel:
    """Return a chain with a skip connection: a, b, c, an addition of a and c, d, e, a norm, f.

    The norm never runs on integers.
    """
    draw = np.random.RandomState(seed)
    layers = []
    for name in NAMES:
        ms = float(draw.uniform(0.5, 1.5))
        faster = ms * float(draw.uniform(0.3, 1.2))
        layers.append(TimedLayer(name, {FLOAT32: ms, FLOAT16: ms, INT8: faster}, (INT8,)))
    operations = (
        TimedOperation("add", 0.2, 0.05, before=("a", "c"), after=("d",)),
        TimedOperation("norm", 0.1, None, before=("e",), after=("f",)),
    )
    edges = [("a", ("b", "add")), ("b", ("c",)), ("c", ("add",)), ("add", ("d",)), ("d", ("e",))]
    passages = [Passage(one, others, int(draw.randint(1e4, 9e5))) for one, others in edges]
    return LatencyModel(tuple(layers), operations, tuple(passages), rates, fixed_ms=0.3)


def every_choice(menu: Menu) -> list[list[int]]:
    options = range(len(menu.precisions))
    return [list(each) for each in itertools.product(options, repeat=len(menu.layers))]


def least(
    timed: TimedMenu, cost: Callable[[list[int]], float], fits: Callable[[list[int]], bool]
) -> float:
    return min(cost(each) for each in every_choice(timed.menu) if fits(each))


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_fastest_choice_within_a_harm(seed: int) -> None:
    timed = TimedMenu(Menu(ranking(seed)), latency(seed))
    harms = sorted(timed.menu.harm(each) for each in every_choice(timed.menu))
    for limit in (harms[-1], harms[len(harms) // 2], harms[len(harms) // 8]):
        found = timed.best(size=0.0, latency=1.0, max_harm=limit)

        def fits(each: list[int], most: float = limit) -> bool:
            return timed.menu.harm(each) <= most * 1.000001

        wanted = least(timed, timed.predict, fits)
        assert found is not None
        assert timed.menu.harm(found) <= limit * 1.000001
        assert timed.predict(found) == pytest.approx(wanted, rel=GAP)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_smallest_choice_within_a_latency_and_a_harm(seed: int) -> None:
    timed = TimedMenu(Menu(ranking(seed)), latency(seed))
    menu = timed.menu
    times = sorted(timed.predict(each) for each in every_choice(menu))
    for limit in (times[-1], times[len(times) // 2], times[len(times) // 20]):
        harm = 0.03

        def fits(each: list[int], ms: float = limit, most: float = harm) -> bool:
            return menu.harm(each) <= most and timed.predict(each) <= ms * 1.000001

        found = timed.best(size=1.0, latency=0.0, max_harm=harm, max_ms=limit)
        if found is None:
            assert not any(map(fits, every_choice(menu)))
        else:
            assert fits(found)
            assert menu.bytes(found) == pytest.approx(least(timed, menu.bytes, fits), rel=GAP)


def test_what_nothing_meets_has_no_solution() -> None:
    timed = TimedMenu(Menu(ranking()), latency())
    assert timed.best(size=1.0, latency=0.0, max_ms=0.1) is None


def test_layers_beside_the_menu_are_in_float() -> None:
    model = latency()
    timed = TimedMenu(Menu(ranking()[:3]), model)
    chosen = dict(timed.menu.candidate(timed.menu.smallest()).precisions)
    whole = {name: chosen.get(name, FLOAT32) for name in NAMES}
    assert timed.predict(timed.menu.smallest()) == pytest.approx(model.spent(whole).total_ms)
    best = timed.best(size=0.0, latency=1.0)
    assert best is not None
    assert timed.predict(best) <= timed.predict(timed.menu.unchanged())


def test_few_regions_are_faster_than_more_integers() -> None:
    """Between two fast layers int8 is worth it even where it is slower; alone it has to pay."""
    own = [0.4, 1.02, 0.4, 1.5, 0.95, 3.0]
    layers = tuple(
        TimedLayer(name, {FLOAT32: 1.0, FLOAT16: 1.0, INT8: ms}, (INT8,))
        for name, ms in zip(NAMES, own, strict=True)
    )
    passages = tuple(Passage(one, (other,), 100_000) for one, other in itertools.pairwise(NAMES))
    dear = LatencyModel(layers, (), passages, Rates(1e-6, 1e-6))
    cheap = LatencyModel(layers, (), passages)
    menu = Menu(ranking())

    def on_integers(model: LatencyModel) -> list[str]:
        chosen = menu.candidate(TimedMenu(menu, model).fastest()).precisions
        return [name for name, precision in chosen if precision == INT8]

    assert on_integers(cheap) == ["a", "c", "e"]
    assert on_integers(dear) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "goal", [Goal(size=False, latency=True), Goal(latency=True), Goal(max_latency_ms=6.7)], ids=str
)
def test_solutions_reach_from_the_fastest_to_the_float_model(goal: Goal) -> None:
    menu, model = Menu(ranking()), latency(rates=CHEAP)
    found = timed_solutions(menu, model, goal, 8)
    timed = TimedMenu(menu, model)
    assert found[-1] == menu.unchanged()
    assert timed.predict(found[0]) == pytest.approx(
        least(timed, timed.predict, lambda each: True), rel=GAP
    )
    assert len({tuple(each) for each in found}) > 2
    if goal.max_latency_ms is not None:
        assert all(timed.predict(each) <= goal.max_latency_ms for each in found[:-1])


def test_a_limit_is_kept_also_where_predictions_are_off() -> None:
    menu, exact = Menu(ranking()), latency(rates=CHEAP)
    unsure = LatencyModel(
        exact.layers, exact.operations, exact.passages, exact.rates, exact.fixed_ms, error=0.1
    )
    timed = TimedMenu(menu, exact)
    limit = 1.15 * timed.float_ms
    found = timed_solutions(menu, unsure, Goal(max_latency_ms=limit), 6)
    assert len({tuple(each) for each in found}) > 2
    for each in found[:-1]:
        assert timed.predict(each) <= limit / 1.2 + 1e-6


def test_a_limit_that_nothing_meets_is_told_and_the_fastest_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    menu, model = Menu(ranking()), latency()
    with caplog.at_level("WARNING"):
        found = timed_solutions(menu, model, Goal(max_latency_ms=1.0), 6)
    assert found == [TimedMenu(menu, model).fastest(), menu.unchanged()]
    assert "Nothing is predicted to take at most 1 ms" in caplog.text


def test_harms_that_are_no_divergences_are_searched_too() -> None:
    scaled = [
        LayerScore(each.layer, each.score, costs={k: 1e4 * v for k, v in each.costs.items()},
                   sizes=each.sizes)
        for each in ranking()
    ]  # fmt: skip
    found = timed_solutions(Menu(scaled), latency(), Goal(size=False, latency=True), 8)
    assert len({tuple(each) for each in found}) > 3


def test_without_layers_there_is_nothing_to_ask_for() -> None:
    search = BudgetSearch()
    search.start_timed(ranking(), latency(), Goal(latency=True))
    assert search.remaining() > 2
    search.start_timed([], latency(), Goal(latency=True))
    assert search.ask(3) == []
