"""Precisions by integer program, against every choice there is."""

import itertools
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from suite_searches import RANKING, SearchSuite

from seqto.errors import ConfigError
from seqto.search.budget import BudgetSearch, landmarks, solutions
from seqto.search.options import Menu
from seqto.types import FLOAT32, Candidate, Layer, LayerScore

SHARES = {"int4": 0.13, "int8": 0.25, "float16": 0.5, "float32": 1.0}
HARMS = {"int4": 20.0, "int8": 1.0, "float16": 0.01}
BUDGETS = 9


class TestBudget(SearchSuite):
    """The conformance suite."""

    @pytest.fixture
    def search(self) -> BudgetSearch:
        """Return the default."""
        return BudgetSearch()


def some_ranking(
    layers: int = 5, scale: float = 1.0, seed: int = 0, precisions: tuple[str, ...] = tuple(SHARES)
) -> list[LayerScore]:
    """Return layers of random sizes and harms."""
    draw = np.random.RandomState(seed)
    scores = []
    for index in range(layers):
        weight_bytes = int(draw.randint(2_000, 100_000))
        harms = {name: scale * float(draw.lognormal()) * harm for name, harm in HARMS.items()}
        scores.append(
            LayerScore(
                Layer(f"layer{index}", "Conv", weight_bytes),
                1.0 - index / layers,
                costs={name: harms[name] for name in precisions if name != FLOAT32},
                sizes={name: int(weight_bytes * SHARES[name]) for name in precisions},
            )
        )
    return scores


def asked(search: BudgetSearch, ranking: list[LayerScore]) -> list[Candidate]:
    search.start(ranking)
    return search.ask(1000)


def least_harm(menu: Menu, budgets: int) -> list[float]:
    """Return the least harm of any choice within each budget, having tried them all."""
    options = range(len(menu.precisions))
    every = [list(each) for each in itertools.product(options, repeat=len(menu.layers))]
    sizes = np.array([menu.bytes(each) for each in every])
    harms = np.array([menu.harm(each) for each in every])
    limits = [menu.bytes(each) for each in landmarks(menu, budgets)]
    return [float(harms[sizes <= limit].min()) for limit in limits]


# Harms of 1e-5 nats are common, and a solver may take them for nothing.
@pytest.mark.parametrize("scale", [1e3, 1.0, 1e-5, 1e-9])
@pytest.mark.parametrize("seed", [0, 1])
def test_solutions_are_the_best_of_all_choices_within_each_budget(scale: float, seed: int) -> None:
    menu = Menu(some_ranking(scale=scale, seed=seed))
    found = solutions(menu, BUDGETS)
    wanted = least_harm(menu, BUDGETS)
    # The solver's own gap is a ten-thousandth.
    assert [menu.harm(each) for each in found] == pytest.approx(wanted, rel=2e-4, abs=0)
    for each, landmark in zip(found, landmarks(menu, BUDGETS), strict=True):
        assert menu.bytes(each) <= menu.bytes(landmark) + 1e-6


def test_from_the_smallest_model_to_the_float_one() -> None:
    ranking = some_ranking()
    tried = asked(BudgetSearch(budgets=BUDGETS), ranking)
    menu = Menu(ranking)
    assert tried[0] == menu.candidate(menu.smallest())
    assert set(dict(tried[0].precisions).values()) == {"int4"}
    assert set(dict(tried[-1].precisions).values()) == {"float32"}
    assert 4 <= len(tried) <= BUDGETS


def test_harm_falls_from_solution_to_solution() -> None:
    menu = Menu(some_ranking())
    harms = [menu.harm(each) for each in solutions(menu, BUDGETS)]
    assert harms == sorted(harms, reverse=True)


def test_solutions_that_repeat_come_once() -> None:
    ranking = some_ranking(layers=2, precisions=("int8", "float32"))
    tried = asked(BudgetSearch(budgets=30), ranking)
    assert len(set(tried)) == len(tried) <= 4


def test_layers_that_lose_nothing_stay_small() -> None:
    """The first budget already has no harm: nothing is left to solve for."""
    ranking = [
        LayerScore(Layer(name, "Conv", 100), 1.0, costs={"int8": 0.0}, sizes=sizes)
        for name, sizes in (("a", {"int8": 25, "float32": 100}), ("b", {"int8": 9, "float32": 36}))
    ]
    tried = asked(BudgetSearch(), ranking)
    assert [len(each.excluded) for each in tried] == [0, 2]


def test_it_is_deterministic() -> None:
    ranking = some_ranking(layers=20, seed=3)
    assert asked(BudgetSearch(), ranking) == asked(BudgetSearch(), ranking)


def test_a_precision_without_a_predicted_cost_is_refused() -> None:
    ranking = some_ranking(precisions=("int8", "float32"))
    ranking[1] = LayerScore(ranking[1].layer, 0.5, sizes=ranking[1].sizes)
    with pytest.raises(ConfigError, match="int8.*sensitivity=divergence"):
        BudgetSearch().start(ranking)


def test_what_it_is_told_changes_nothing() -> None:
    search = BudgetSearch()
    whole = asked(search, list(RANKING))
    search.start(RANKING)
    assert search.remaining() == len(whole)
    assert [*search.ask(2), *search.ask(1000)] == whole


@pytest.mark.parametrize("wrong", [{"budgets": 1}, {"evaluations": 2}, {"screens": 0}, {"step": 2}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        BudgetSearch(**wrong)
