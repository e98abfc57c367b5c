"""Choices between two neighbours whose measured harms are far apart."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seqto.search.options import Menu
from seqto.types import Candidate, Trial, TrialState

_WIDE = 12.0
"""From how many times the harm of its larger neighbour on a choice is too far from it."""

_MOST = 3
"""How many choices are added at most."""

Solve = Callable[[float, list[int]], list[int]]
"""Returns the best choice within so many bytes, given one that fits."""


@dataclass(eq=False)
class Gaps:
    """Finds where measured choices leave a gap, and what to put there.

    Harms add up only nearly: predicted in even steps, they may fall by a thousand times in one of
    them. Of interest are gaps between the harms `hopeless` and `hardly_any`.
    """

    menu: Menu
    choices: dict[Candidate, list[int]]
    solve: Solve
    hopeless: float
    hardly_any: float
    _harms: dict[Candidate, float] = field(default_factory=dict)
    _added: int = 0

    def tell(self, trial: Trial) -> None:
        """Take note of what was measured; the float model is nobody's neighbour."""
        known = trial.state is TrialState.COMPLETE and "divergence" in trial.metrics
        if known and not trial.candidate.is_float:
            self._harms[trial.candidate] = trial.metrics["divergence"]

    def next(self) -> Candidate | None:
        """Return a choice for the widest gap that one fits into; None if no gap is worth it."""
        known = sorted(self._harms, key=lambda each: self.menu.bytes(self.choices[each]))
        gaps = sorted(itertools.pairwise(known), key=self._width, reverse=True)
        for gap in gaps if self._added < _MOST else ():
            if self._width(gap) < _WIDE:
                break
            smaller, larger = (self.choices[each] for each in gap)
            budget = (self.menu.bytes(smaller) + self.menu.bytes(larger)) / 2
            choice = self._begun_as(smaller, larger, self.solve(budget, smaller))
            candidate = self.menu.candidate(choice)
            if candidate not in self.choices:
                self._added += 1
                self.choices[candidate] = choice
                return candidate
        return None

    def _width(self, gap: Sequence[Candidate]) -> float:
        """Return how many times the harm falls, as far as that is of interest."""
        high, low = (self._harms[each] for each in gap)
        return min(high, self.hopeless) / max(low, self.hardly_any)

    def _begun_as(self, smaller: list[int], larger: list[int], choice: list[int]) -> list[int]:
        """Return the choice with what both neighbours begin with, which then runs once."""
        begun = list(choice)
        for unit in sorted(range(len(choice)), key=lambda each: self.menu.positions[each]):
            if smaller[unit] != larger[unit]:
                break
            begun[unit] = smaller[unit]
        return begun
