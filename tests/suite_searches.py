"""What every search must do; the test of each one subclasses this."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from seqto.protocols import Search, SearchesLatency
from seqto.types import (
    Candidate,
    Goal,
    LatencyModel,
    Layer,
    LayerScore,
    Passage,
    Rates,
    TimedLayer,
    Trial,
    TrialState,
)

LAYERS = ("f", "b", "d", "a", "e", "c")
"""The most hurt first; not in the order of the alphabet, nor in its reverse."""

RANKING = tuple(
    LayerScore(
        Layer(name, "Conv", 100),
        1.0 - index / len(LAYERS),
        costs={"int8": 1.0 - index / len(LAYERS)},
        sizes={"int8": 25, "float32": 100},
    )
    for index, name in enumerate(LAYERS)
)

GROUPS = {"b": "b", "e": "b", "a": "a", "c": "a"}
"""Layers that have to have the same precision as others, and the names of their groups."""

GROUPED = tuple(
    replace(each, layer=replace(each.layer, group=GROUPS.get(each.layer.name, "")))
    for each in RANKING
)


LATENCY = LatencyModel(
    layers=tuple(
        TimedLayer(name, {"int8": 2.5 if name == "b" else 0.5, "float32": 1.0}, ("int8",))
        for name in LAYERS
    ),
    passages=tuple(
        Passage(one, (other,), 1000) for one, other in itertools.pairwise(sorted(LAYERS))
    ),
    rates=Rates(1e-4, 1e-4),
)
"""A chain in the order of the alphabet: in int8 all layers but `b` are faster."""

GOALS = (Goal(size=False, latency=True), Goal(latency=True), Goal(max_latency_ms=5.0))


def told(index: int, candidate: Candidate, loss: float | None = 0.5) -> Trial:
    """Return the trial of this candidate, complete with this loss, or failed without one."""
    if loss is None:
        return Trial(f"run-{index}", index, candidate, TrialState.FAILED, failure="it broke")
    size = 1000.0 + len(candidate.excluded)
    metrics = {"accuracy_loss": loss, "divergence": loss, "size_bytes": size}
    return Trial(f"run-{index}", index, candidate, TrialState.COMPLETE, metrics, "ab" * 32)


def climb(search: Search, losses: list[float | None] | None = None, count: int = 1) -> list[int]:
    """Run a whole study, so many candidates at a time; return how many layers each excluded."""
    return [len(each.excluded) for each in candidates(search, losses, count)]


def candidates(
    search: Search,
    losses: list[float | None] | None = None,
    count: int = 1,
    ranking: Sequence[LayerScore] = RANKING,
) -> list[Candidate]:
    """Run a whole study, so many candidates at a time; return what was tried."""
    search.start(ranking)
    tried: list[Candidate] = []
    while asked := search.ask(count):
        assert len(asked) <= count
        for candidate in asked:
            index = len(tried)
            tried.append(candidate)
            search.tell(told(index, candidate, losses[index] if losses else 0.5))
        assert len(tried) < 1000, "the search does not end"
    return tried


def timed_candidates(
    search: Search, goal: Goal, ranking: Sequence[LayerScore] = RANKING
) -> list[Candidate]:
    """Run a whole search for fast candidates; return what was tried."""
    assert isinstance(search, SearchesLatency)
    search.start_timed(ranking, LATENCY, goal)
    tried: list[Candidate] = []
    while asked := search.ask(2):
        for each in asked:
            trial = told(len(tried), each)
            times = {"latency_predicted_ms": LATENCY.predict(each)}
            search.tell(replace(trial, metrics={**trial.metrics, **times}))
            tried.append(each)
        assert len(tried) < 1000, "the search does not end"
    return tried


class SearchSuite:
    """Subclasses give the fixture `search`."""

    @pytest.fixture
    def search(self) -> Search:
        """Return the search to test."""
        raise NotImplementedError

    def test_has_a_name(self, search: Search) -> None:
        assert search.name

    def test_every_candidate_chooses_for_every_layer(self, search: Search) -> None:
        tried = candidates(search)
        assert tried
        for candidate in tried:
            assert {name for name, _ in candidate.precisions} == set(LAYERS)

    def test_layers_of_a_group_get_the_same_precision(self, search: Search) -> None:
        tried = [dict(candidate.precisions) for candidate in candidates(search, ranking=GROUPED)]
        assert len({tuple(sorted(each.items())) for each in tried}) == len(tried) > 1
        for precisions in tried:
            assert set(precisions) == set(LAYERS)
            assert precisions["b"] == precisions["e"]
            assert precisions["a"] == precisions["c"]

    def test_no_candidate_comes_twice(self, search: Search) -> None:
        keys = [candidate.key for candidate in candidates(search)]
        assert len(set(keys)) == len(keys)

    @pytest.mark.parametrize("count", [1, 2, 5, 100])
    def test_batches_end_too(self, search: Search, count: int) -> None:
        tried = candidates(search, count=count)
        assert tried
        assert search.ask(count) == []

    def test_same_study_again_tries_the_same(self, search: Search) -> None:
        assert candidates(search) == candidates(search)

    def test_starting_forgets_the_study_before(self, search: Search) -> None:
        whole = candidates(search)
        search.start(RANKING)
        search.ask(2)
        assert candidates(search) == whole
        # Nor does it matter that the one before met every limit.
        candidates(search, [0.0] * 1000)
        assert candidates(search) == whole

    def test_remaining_counts_down_to_nothing(self, search: Search) -> None:
        search.start(RANKING)
        left = [search.remaining()]
        while asked := search.ask(1):
            search.tell(told(len(left) - 1, asked[0]))
            left.append(search.remaining())
        # At the most: a search may end before, but never try more than it said.
        assert len(left) - 1 <= left[0]
        assert left == sorted(set(left), reverse=True)
        assert left[-1] == 0

    def test_screens_and_evaluations_are_counts(self, search: Search) -> None:
        # Without a screen there is nothing to choose from for the evaluations.
        assert search.screens == search.evaluations == 0 or (
            search.screens >= 1 and search.evaluations >= 3
        )

    def test_failures_do_not_end_it(self, search: Search) -> None:
        # A genetic search may breed the same candidate again, so it is not the same number.
        assert 2 * len(candidates(search, [None] * 1000)) > len(candidates(search))

    def test_a_model_of_one_layer_can_be_searched(self, search: Search) -> None:
        search.start(RANKING[:1])
        tried: list[Candidate] = []
        while asked := search.ask(1):
            tried += asked
            search.tell(told(len(tried), asked[0]))
        assert [dict(each.precisions) for each in tried] == [
            {LAYERS[0]: "int8"},
            {LAYERS[0]: "float32"},
        ]
        assert search.remaining() == 0

    @pytest.mark.parametrize("goal", GOALS, ids=str)
    def test_fast_candidates_are_looked_for(self, search: Search, goal: Goal) -> None:
        if not isinstance(search, SearchesLatency):
            pytest.skip(f"{search.name} does not look for fast candidates")
        whole = timed_candidates(search, goal)
        assert whole == timed_candidates(search, goal) and len(set(whole)) == len(whole)
        assert all({name for name, _ in each.precisions} == set(LAYERS) for each in whole)
        # In int8 `b` is slower, even with the conversions around it.
        assert min(whole, key=LATENCY.predict).excluded == ("b",)
        for each in timed_candidates(search, goal, GROUPED):
            chosen = dict(each.precisions)
            assert chosen["b"] == chosen["e"] and chosen["a"] == chosen["c"]
        assert timed_candidates(search, goal, ()) == []

    def test_without_layers_there_is_nothing_to_ask_for(self, search: Search) -> None:
        # Not even what was left of the study before.
        search.start(RANKING)
        search.ask(1)
        search.start(())
        assert search.remaining() == 0
        assert search.ask(3) == []
