"""One search after another, from several bases."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from suite_searches import GROUPED, LAYERS, RANKING, SearchSuite, told

from seqto.protocols import Search
from seqto.search.bases import SearchFromBases
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.types import Candidate, LayerScore, Trial


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


class TestOneBase(SearchSuite):
    """The conformance suite, of one base."""

    @pytest.fixture
    def search(self) -> Search:
        """Return a ladder from one base."""
        return Following(LadderSearch(), 1)


class TestTwoBases(SearchSuite):
    """The conformance suite, but for what it says of a single ranking."""

    @pytest.fixture
    def search(self) -> Search:
        """Return a ladder from two bases."""
        return Following(LadderSearch(), 2)

    def test_a_model_of_one_layer_can_be_searched(self, search: Search) -> None:
        search.start(RANKING[:1])
        tried = search.ask(2) + search.ask(2)
        assert [(dict(each.precisions)[LAYERS[0]], each.scheme) for each in tried] == [
            *(("int8", "base0"), ("float32", "base0")),
            *(("int8", "base1"), ("float32", "base1")),
        ]
        assert search.ask(2) == [] and search.remaining() == 0

    def test_layers_of_a_group_get_the_same_precision(self, search: Search) -> None:
        tried = whole(search, GROUPED)
        assert len({each.key for each in tried}) == len(tried) > 2
        for precisions in (dict(each.precisions) for each in tried):
            assert precisions["b"] == precisions["e"] and precisions["a"] == precisions["c"]


class Following(SearchFromBases):
    """Bases whose rankings are the one that the search is started with."""

    def __init__(self, inner: Search, bases: int) -> None:
        self._bases = [f"base{at}" for at in range(bases)]
        super().__init__(inner, {})

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Give all bases this ranking."""
        self._rankings = dict.fromkeys(self._bases, ranking)
        super().start(ranking)


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


def whole(
    search: Search, ranking: Sequence[LayerScore] = RANKING, count: int = 1, loss: float = 0.5
) -> list[Candidate]:
    """Run a whole search, and return all that it asked for."""
    search.start(ranking)
    tried: list[Candidate] = []
    while asked := search.ask(count):
        for each in asked:
            search.tell(told(len(tried), each, loss))
            tried.append(each)
        assert len(tried) < 1000, "the search does not end"
    return tried


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("name", SEARCHES)
def test_each_base_is_searched_as_if_it_were_alone(name: str, count: int) -> None:
    tried = whole(SearchFromBases(SEARCHES[name](), BASES), (), count)
    alone = {base: whole(SEARCHES[name](), ranking, count) for base, ranking in BASES.items()}
    assert alone["one, safe"] != alone["two, fast"], "or the rankings are no test"
    assert tried == [
        replace(each, scheme=base) for base, candidates in alone.items() for each in candidates
    ]


@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_of_two_bases_are_never_the_same(name: str) -> None:
    # Not even where the layers are.
    tried = whole(SearchFromBases(SEARCHES[name](), dict.fromkeys(BASES, RANKING)))
    assert {each.scheme for each in tried} == set(BASES)
    assert len({each.key for each in tried}) == len(tried)
    assert len({each.precisions for each in tried}) == len(tried) / 2


@pytest.mark.parametrize("name", SEARCHES)
def test_search_is_told_of_its_own_candidates_in_order(name: str) -> None:
    inner = Listening(SEARCHES[name]())
    tried = whole(SearchFromBases(inner, BASES))
    assert [trial.candidate for trial in inner.told] == [replace(each, scheme="") for each in tried]
    assert [trial.index for trial in inner.told] == list(range(len(tried)))
    assert all(trial.metrics["divergence"] == 0.5 for trial in inner.told)
    assert inner.rankings == list(BASES.values())


def test_failures_are_told_of_too() -> None:
    inner = Listening(LadderSearch())
    search = SearchFromBases(inner, BASES)
    search.start(())
    (candidate,) = search.ask(1)
    search.tell(told(0, candidate, None))
    assert inner.told[0].failure == "it broke" and inner.told[0].candidate.scheme == ""


def test_what_ends_the_search_from_one_base_does_not_end_it_from_the_next() -> None:
    search = SearchFromBases(LadderSearch(stop_at_loss=0.1), BASES)
    search.start(())
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
    search = SearchFromBases(LadderSearch(), {**BASES, "three": RANKING})
    search.start(())
    rungs, left = len(LAYERS) + 1, []
    assert search.remaining() == 3 * rungs
    while asked := search.ask(1):
        search.tell(told(0, asked[0]))
        left.append(search.remaining())
    assert left == list(range(3 * rungs))[::-1]


def test_batches_do_not_go_across_bases() -> None:
    search = SearchFromBases(LadderSearch(), BASES)
    search.start(())
    batches = [search.ask(5) for _ in range(4)]
    assert [len(batch) for batch in batches] == [5, 2, 5, 2]
    assert all(len({each.scheme for each in batch}) == 1 for batch in batches)
    assert search.ask(5) == []


@pytest.mark.parametrize("name", SEARCHES)
def test_it_is_the_search_in_all_else(name: str) -> None:
    inner = SEARCHES[name]()
    search = SearchFromBases(inner, BASES)
    assert (search.name, search.screens, search.evaluations) == (
        *(inner.name, inner.screens, inner.evaluations),
    )


def test_without_a_start_there_is_nothing_to_ask_for() -> None:
    search = SearchFromBases(LadderSearch(), BASES)
    assert search.ask(3) == [] and search.remaining() == 0
