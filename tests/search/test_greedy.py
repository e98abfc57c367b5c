"""One exchange at a time."""

import itertools
from typing import Any

import pytest
from pydantic import ValidationError
from suite_searches import SearchSuite

from seqto.search.greedy import GreedySearch
from seqto.search.options import Menu
from seqto.types import Candidate, Layer, LayerScore


class TestGreedy(SearchSuite):
    """The conformance suite."""

    @pytest.fixture
    def search(self) -> GreedySearch:
        """Return the default."""
        return GreedySearch()


def layer(name: str, int4: float, int8: float, weight_bytes: int) -> LayerScore:
    sizes = {"int4": weight_bytes // 8, "int8": weight_bytes // 4, "float32": weight_bytes}
    costs = {"int4": int4, "int8": int8}
    return LayerScore(Layer(name, "Conv", weight_bytes), 1.0, costs=costs, sizes=sizes)


RANKING = [
    layer("a", 9.0, 4.0, 8000),
    layer("b", 2.0, 1.9, 800),
    layer("c", 30.0, 0.1, 16000),
    # Nothing to win: it stays small until the float model.
    layer("d", 0.0, 0.0, 8000),
]


def way(step: int = 1) -> list[dict[str, str]]:
    search = GreedySearch(step=step)
    search.start(RANKING)
    return [dict(each.precisions) for each in search.ask(1000)]


def figures(precisions: dict[str, str]) -> tuple[int, float]:
    """Return the bytes and the harm of this choice."""
    size, harm = 0, 0.0
    for each in RANKING:
        precision = precisions[each.layer.name]
        size += each.sizes[precision]
        harm += each.costs.get(precision, 0.0)
    return size, harm


def exchanges(precisions: dict[str, str]) -> list[tuple[float, dict[str, str]]]:
    """Return every larger choice with one layer changed, and the harm a byte it undoes."""
    found = []
    size, harm = figures(precisions)
    for name, other in itertools.product(precisions, ("int4", "int8", "float32")):
        after = {**precisions, name: other}
        size_after, harm_after = figures(after)
        if size_after > size:
            found.append(((harm - harm_after) / (size_after - size), after))
    return found


def test_from_the_smallest_model_to_the_float_one() -> None:
    steps = way()
    assert set(steps[0].values()) == {"int4"}
    assert set(steps[-1].values()) == {"float32"}


def test_each_step_is_the_best_exchange() -> None:
    steps = way()
    for before, after in itertools.pairwise(steps[:-1]):
        gain, best = max(exchanges(before), key=lambda each: each[0])
        assert gain > 0
        assert after == best
    # In the end no exchange undoes harm, and only the float model follows.
    assert max(gain for gain, _ in exchanges(steps[-2])) <= 0
    assert steps[-2]["d"] == "int4"


def test_sizes_rise_and_harm_falls() -> None:
    sizes, harms = zip(*map(figures, way()), strict=True)
    assert list(sizes) == sorted(set(sizes))
    assert list(harms) == sorted(harms, reverse=True)


def test_a_jump_over_a_precision_is_an_exchange_too() -> None:
    # b at int8 is hardly better than at int4, so it goes to float at once.
    assert {step["b"] for step in way()} == {"int4", "float32"}


@pytest.mark.parametrize("step", [2, 3, 100])
def test_steps_leave_out_candidates_between_but_never_the_ends(step: int) -> None:
    whole = way()
    *path, unchanged = whole
    wanted = path[::step] if path[::step][-1] == path[-1] else [*path[::step], path[-1]]
    assert way(step) == [*wanted, unchanged]


def test_candidates_come_up_to_the_count() -> None:
    search = GreedySearch(step=1)
    search.start(RANKING)
    assert search.remaining() == len(way())
    first = search.ask(2)
    menu = Menu(RANKING)
    assert first[0] == menu.candidate(menu.smallest())
    assert [*first, *search.ask(1000)] == [Candidate.of(each) for each in way()]


@pytest.mark.parametrize("wrong", [{"step": 0}, {"evaluations": 2}, {"screens": 0}, {"order": "x"}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        GreedySearch(**wrong)
