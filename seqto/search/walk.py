"""A search run from its first candidate to its last, with complete candidates."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from seqto.errors import StudyError
from seqto.protocols import Search, SearchesLatency
from seqto.types import FLOAT32, Candidate, Goal, LatencyModel, LayerScore, Trial


class Walk:
    """Runs a search once for each base, and completes the candidates that it asks for.

    A search knows only the layers that it may choose for. Its candidates get the base as their
    scheme, and float32 for the layers that are left out. `rankings` maps each base to its ranking;
    a quantizer without schemes has one base, named "". Where `latencies` has a model of a base, the
    search is for the `goal`, by these predictions.
    """

    def __init__(
        self,
        search: Search,
        rankings: Mapping[str, Sequence[LayerScore]],
        left_out: Collection[str] = (),
        latencies: Mapping[str, LatencyModel] | None = None,
        goal: Goal | None = None,
    ) -> None:
        self._search = search
        self._latencies, self._goal = latencies or {}, goal or Goal()
        self._left_out = left_out
        self._rankings = {
            base: [each for each in ranking if each.layer.name not in left_out]
            for base, ranking in rankings.items()
        }
        self._asked: dict[Candidate, Candidate] = {}
        self._bases: Iterator[str] = iter(self._rankings)
        self._waiting = len(self._rankings)
        self._base = ""
        self._next()

    def ask(self, count: int) -> list[Candidate]:
        """Return up to `count` complete candidates; none when all bases are done."""
        while not (candidates := self._search.ask(count)):
            if not self._next():
                return []
        self._check(candidates)
        whole = [complete(each, self._left_out, self._base) for each in candidates]
        self._asked |= dict(zip(whole, candidates, strict=True))
        return whole

    def _check(self, candidates: Sequence[Candidate]) -> None:
        """Raise where the search does not choose for the layers that it was given."""
        known = {each.layer.name for each in self._rankings[self._base]}
        for candidate in candidates:
            if different := known ^ {name for name, _ in candidate.precisions}:
                raise StudyError(
                    f"search {self._search.name} has to give a precision to each layer of the "
                    f"ranking, and to no other: {min(different)!r} is wrong or missing."
                )

    def tell(self, trial: Trial) -> None:
        """Tell the search about the candidate that it asked for."""
        self._search.tell(replace(trial, candidate=self._asked.pop(trial.candidate)))

    def remaining(self) -> int:
        """Return how many candidates are left, if each further base has as many as this one."""
        return self._search.remaining() + self._waiting * self._from_a_base

    def _next(self) -> bool:
        base = next(self._bases, None)
        if base is None:
            return False
        self._base = base
        self._waiting -= 1
        self._start(base)
        self._from_a_base = self._search.remaining()
        return True

    def _start(self, base: str) -> None:
        ranking, latency = self._rankings[base], self._latencies.get(base)
        if latency is not None and isinstance(self._search, SearchesLatency):
            self._search.start_timed(ranking, latency, self._goal)
        else:
            self._search.start(ranking)


def complete(candidate: Candidate, left_out: Collection[str], scheme: str = "") -> Candidate:
    """Return the candidate with this scheme, and with these layers in float32."""
    precisions = {**dict(candidate.precisions), **dict.fromkeys(left_out, FLOAT32)}
    return Candidate.of(precisions, scheme)
