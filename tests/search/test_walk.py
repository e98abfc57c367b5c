"""A search from several bases, whose candidates are completed."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from suite_searches import GROUPED, LAYERS, RANKING, told

from seqto.errors import StudyError
from seqto.protocols import Search
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.search.walk import Walk
from seqto.types import FLOAT32, Candidate, LayerScore, Trial


def turned(ranking: Sequence[LayerScore]) -> tuple[LayerScore, ...]:
    """Return the same layers, with the harm of the first to the last."""
    scores = [(each.score, each.costs) for each in ranking]
    backwards = zip(reversed(ranking), scores, strict=True)
    return tuple(replace(each, score=score, costs=costs) for each, (score, costs) in backwards)


BASES = {"one, safe": RANKING, "two, fast": turned(RANKING)}

SEARCHES: dict[str, Callable[[], Search]] = {
    "ladder": LadderSearch,
    "ladder with a step": lambda: LadderSearch(step=2),
    "budget": lambda: BudgetSearch(budgets=6),
    "nsga2": lambda: Nsga2Search(population=8, generations=3),
}


class Listening:
    """A search that keeps what it is told, and is otherwise another."""

    def __init__(self, inner: Search) -> None:
        self._inner = inner
        self.name, self.screens, self.evaluations = inner.name, inner.screens, inner.evaluations
        self.ask, self.remaining = inner.ask, inner.remaining
        self.rankings: list[Sequence[LayerScore]] = []
        self.told: list[Trial] = []

    def start(self, ranking: Sequence[LayerScore]) -> None:
        self.rankings.append(ranking)
        self._inner.start(ranking)

    def tell(self, trial: Trial) -> None:
        self.told.append(trial)
        self._inner.tell(trial)


def whole(search: Search | Walk, count: int = 1, loss: float = 0.5) -> list[Candidate]:
    """Go through a whole search that was started, and return all that it asked for."""
    tried: list[Candidate] = []
    while asked := search.ask(count):
        for each in asked:
            search.tell(told(len(tried), each, loss))
            tried.append(each)
        assert len(tried) < 1000, "the search does not end"
    return tried


def alone(search: Search, ranking: Sequence[LayerScore], count: int = 1) -> list[Candidate]:
    """Return what a search asks for that is started by hand."""
    search.start(ranking)
    return whole(search, count)


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("name", SEARCHES)
def test_each_base_is_searched_as_if_it_were_alone(name: str, count: int) -> None:
    tried = whole(Walk(SEARCHES[name](), BASES), count)
    each_alone = {base: alone(SEARCHES[name](), own, count) for base, own in BASES.items()}
    assert each_alone["one, safe"] != each_alone["two, fast"], "or the rankings are no test"
    assert tried == [
        replace(each, scheme=base) for base, candidates in each_alone.items() for each in candidates
    ]


@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_of_two_bases_are_never_the_same(name: str) -> None:
    # Not even where the layers are.
    tried = whole(Walk(SEARCHES[name](), dict.fromkeys(BASES, RANKING)))
    assert {each.scheme for each in tried} == set(BASES)
    assert len({each.key for each in tried}) == len(tried)
    assert len({each.precisions for each in tried}) == len(tried) / 2


@pytest.mark.parametrize("name", SEARCHES)
def test_search_is_told_of_its_own_candidates_in_order(name: str) -> None:
    inner = Listening(SEARCHES[name]())
    tried = whole(Walk(inner, BASES))
    assert [trial.candidate for trial in inner.told] == [replace(each, scheme="") for each in tried]
    assert [trial.index for trial in inner.told] == list(range(len(tried)))
    assert all(trial.metrics["divergence"] == 0.5 for trial in inner.told)
    assert [tuple(each) for each in inner.rankings] == list(BASES.values())


def test_failures_are_told_of_too() -> None:
    inner = Listening(LadderSearch())
    search = Walk(inner, BASES)
    (candidate,) = search.ask(1)
    search.tell(told(0, candidate, None))
    assert inner.told[0].failure == "it broke" and inner.told[0].candidate.scheme == ""


def test_what_ends_the_search_from_one_base_does_not_end_it_from_the_next() -> None:
    search = Walk(LadderSearch(stop_at_loss=0.1), BASES)
    losses = {"one, safe": [0.5, 0.05], "two, fast": [0.5, 0.4, 0.3, 0.0]}
    tried: dict[str, int] = dict.fromkeys(BASES, 0)
    while asked := search.ask(5):
        for each in asked:
            assert len(each.excluded) == tried[each.scheme]
            search.tell(told(0, each, losses[each.scheme][tried[each.scheme]]))
            tried[each.scheme] += 1
    assert tried == {"one, safe": 2, "two, fast": 4}
    assert search.remaining() == 0


def test_remaining_has_the_bases_that_wait() -> None:
    search = Walk(LadderSearch(), {**BASES, "three": RANKING})
    rungs, left = len(LAYERS) + 1, []
    assert search.remaining() == 3 * rungs
    while asked := search.ask(1):
        search.tell(told(0, asked[0]))
        left.append(search.remaining())
    assert left == list(range(3 * rungs))[::-1]


def test_batches_do_not_go_across_bases() -> None:
    search = Walk(LadderSearch(), BASES)
    batches = [search.ask(5) for _ in range(4)]
    assert [len(batch) for batch in batches] == [5, 2, 5, 2]
    assert all(len({each.scheme for each in batch}) == 1 for batch in batches)
    assert search.ask(5) == []


def test_layers_of_a_group_get_the_same_precision() -> None:
    tried = whole(Walk(LadderSearch(), dict.fromkeys(BASES, GROUPED)))
    assert len(tried) > 2
    for each in tried:
        precisions = dict(each.precisions)
        assert precisions["b"] == precisions["e"] and precisions["a"] == precisions["c"]


@pytest.mark.parametrize("name", SEARCHES)
def test_layers_that_are_left_out_are_float_and_the_search_does_not_know_them(name: str) -> None:
    inner = Listening(SEARCHES[name]())
    left_out = (LAYERS[0], LAYERS[3])
    tried = whole(Walk(inner, BASES, left_out))
    assert {frozenset(name for name, _ in each.precisions) for each in tried} == {frozenset(LAYERS)}
    assert all({dict(each.precisions)[name] for name in left_out} == {FLOAT32} for each in tried)
    own = [trial.candidate for trial in inner.told]
    assert len(own) == len(tried) > 2
    assert not {name for each in own for name, _ in each.precisions} & set(left_out)
    assert [len(ranking) for ranking in inner.rankings] == [len(LAYERS) - 2] * 2


@pytest.mark.parametrize("name", SEARCHES)
def test_where_all_layers_are_left_out_there_is_nothing_to_ask_for(name: str) -> None:
    walk = Walk(SEARCHES[name](), BASES, LAYERS)
    assert walk.remaining() == 0 and walk.ask(3) == []


@pytest.mark.parametrize("names", [("zzz",), LAYERS[1:], (*LAYERS, "zzz")], ids=len)
def test_a_search_that_chooses_for_other_layers_is_told_so(names: Sequence[str]) -> None:
    class Astray(LadderSearch):
        def ask(self, count: int) -> list[Candidate]:
            return [Candidate.excluding(names, [])]

    with pytest.raises(StudyError, match="search ladder has to give a precision to each layer"):
        Walk(Astray(), BASES).ask(1)
