"""The shortlisted candidates, evaluated as long as a larger one may still be better."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from seqto.figures import RUINED
from seqto.pareto.front import comparable, non_dominated
from seqto.search.planned import Planned
from seqto.types import Candidate, Trial, TrialState

_SURELY = 1.05
"""By how much an estimated size has to be above a measured one to be larger for sure."""

_APART = 1.03
"""How many times the size of the next smaller one a candidate has that is worth an evaluation."""

_TINY = 1e-6
"""Losses below this are as good as none."""

_OBJECTIVES = ("accuracy_loss", "size_bytes")


class Race(Planned):
    """Candidates of which those that cannot be on the front any more are not evaluated.

    A candidate that loses nothing on any sample dominates all larger ones. `sizes` are estimates,
    also of `spare` candidates; those without one are always evaluated. Of those that are asked for
    at a time, none is dropped: they run side by side.

    Each of them that was dropped, or stopped while it ran, makes room for a spare candidate, where
    the front has its widest gap. Losses that differ by less than `least` do not make a gap wider.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        sizes: Mapping[Candidate, float] | None = None,
        spare: Sequence[Candidate] = (),
        least: float = _TINY,
    ) -> None:
        self.plan(candidates)
        self._listed, self._sizes = candidates, sizes or {}
        self._spare, self._least = spare, least
        self._told: dict[Candidate, Trial] = {}
        self._room = 0
        self.dropped: tuple[Candidate, ...] = ()
        self.added: tuple[Candidate, ...] = ()

    @property
    def evaluated(self) -> list[Candidate]:
        """The candidates that were not dropped, and those that took their places."""
        return [each for each in (*self._listed, *self.added) if each not in self.dropped]

    def ask(self, count: int) -> list[Candidate]:
        """Return the next candidates; once all are measured, those that fill gaps."""
        if not self._pending and len(self._told) == len(self.evaluated):
            found = list(itertools.islice(self._in_gaps(), self._room))
            self._room -= len(found)
            self.added += tuple(found)
            self.plan(found)
        return super().ask(count)

    def tell(self, trial: Trial) -> None:
        """Drop the candidates that this one dominates."""
        self._told[trial.candidate] = trial
        self._room += trial.state is TrialState.STOPPED and trial.candidate in self._listed
        if trial.state is not TrialState.COMPLETE or trial.metrics["accuracy_loss"] > 0:
            return
        limit = _SURELY * trial.metrics["size_bytes"]
        larger = [each for each in self._pending if self._sizes.get(each, 0.0) > limit]
        self.dropped += tuple(larger)
        self._room += len(larger)
        self.plan(each for each in self._pending if each not in larger)

    def _in_gaps(self) -> Iterator[Candidate]:
        """Yield the spare candidate nearest to the middle of each gap, the widest gap first."""
        measured = comparable(self._told.values()) if self._room else []
        members = non_dominated(measured, _OBJECTIVES) if measured else []
        front = sorted(members, key=lambda trial: trial.metrics["size_bytes"])
        gaps = [(self._area(*gap), gap) for gap in itertools.pairwise(front)]
        for area, (smaller, larger) in sorted(gaps, key=lambda gap: gap[0], reverse=True):
            low, high = (each.metrics["size_bytes"] for each in (smaller, larger))
            middle = math.sqrt(low * high)
            fitting = [
                each
                for each in self._spare
                if each not in self.added and _APART * low < self._sizes[each] < high / _APART
            ]
            if area > 0 and fitting:
                yield min(fitting, key=lambda each: abs(math.log(self._sizes[each] / middle)))

    def _area(self, smaller: Trial, larger: Trial) -> float:
        """Return how much two neighbours leave open: by what both loss and size differ."""
        losses = (min(each.metrics["accuracy_loss"], RUINED) for each in (smaller, larger))
        high, low = (math.log(max(each, self._least)) for each in losses)
        grown = larger.metrics["size_bytes"] / smaller.metrics["size_bytes"]
        return (high - low) * math.log(grown)
