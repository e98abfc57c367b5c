"""One search after another, from several bases."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from seqto.protocols import Search
from seqto.types import Candidate, LayerScore, Trial


class SearchFromBases:
    """Runs a search once for each base, with the base's own ranking of the layers.

    Its candidates have the base as their scheme; the search itself does not know of it.
    """

    def __init__(self, inner: Search, rankings: Mapping[str, Sequence[LayerScore]]) -> None:
        self.name = inner.name
        self._inner = inner
        self._rankings = rankings
        self._left: Iterator[str] = iter(())
        self._base = ""
        self._waiting = self._asked_from_a_base = 0

    @property
    def screens(self) -> int:
        """As many as the search wants."""
        return self._inner.screens

    @property
    def evaluations(self) -> int:
        """As many as the search wants."""
        return self._inner.evaluations

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Begin at the first base; each has a ranking of its own."""
        self._left = iter(self._rankings)
        self._waiting = len(self._rankings)
        self._next()

    def ask(self, count: int) -> list[Candidate]:
        """Return what the search asks for from this base, or from the next if it is over."""
        while not (candidates := self._inner.ask(count)):
            if not self._next():
                return []
        return [replace(each, scheme=self._base) for each in candidates]

    def tell(self, trial: Trial) -> None:
        """Let the search take note, as if there were one base."""
        self._inner.tell(replace(trial, candidate=replace(trial.candidate, scheme="")))

    def remaining(self) -> int:
        """Return how many candidates are left, as if the search took as many from each base."""
        return self._inner.remaining() + self._waiting * self._asked_from_a_base

    def _next(self) -> bool:
        base = next(self._left, None)
        if base is None:
            return False
        self._base = base
        self._waiting -= 1
        self._inner.start(self._rankings[base])
        self._asked_from_a_base = self._inner.remaining()
        return True
