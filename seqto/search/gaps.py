"""Choices between two neighbours whose likely losses are far apart."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqto.figures import EXPECTED
from seqto.search.options import Menu
from seqto.types import Candidate, Trial, TrialState

_WIDE = 1.6
"""From how many times the loss of its larger neighbour on a choice is too far from it."""

_APART = 1.04
"""How many times the bytes of the smaller neighbour the larger one has at least: between choices
that are closer, a loss that falls at once would take all that may be added."""

_MOST = 5
"""How many choices are added at most."""

_LIGHT = 0.05
"""Which share of the bytes the layers hold at most that choices may begin with alike."""

_HOPELESS, _HARDLY_ANY = 0.15, 0.003
"""The likely losses between which gaps are of interest."""

_USUAL = 0.2
"""The loss of a classifier, as a multiple of the square root of its divergence."""

Solve = Callable[[float, list[int]], list[int]]
"""Returns the best choice within so many bytes, given one that fits."""


@dataclass(eq=False)
class Gaps:
    """Finds where measured choices leave a gap, and what to put there.

    Harms add up only nearly: predicted in even steps, they may fall by a thousand times in one of
    them. A few choices show where the loss falls, and the others are put there.
    """

    menu: Menu
    choices: dict[Candidate, list[int]]
    solve: Solve
    _losses: dict[Candidate, float] = field(default_factory=dict)
    _added: int = 0

    def tell(self, trial: Trial) -> None:
        """Take note of what was measured; the float model is nobody's neighbour."""
        known = trial.state is TrialState.COMPLETE and "divergence" in trial.metrics
        if known and not trial.candidate.is_float:
            usual = _USUAL * math.sqrt(trial.metrics["divergence"])
            self._losses[trial.candidate] = trial.metrics.get(EXPECTED, usual)

    def next(self) -> Candidate | None:
        """Return a choice for the widest gap that one fits into; None if no gap is worth it."""
        known = sorted(self._losses, key=lambda each: self.menu.bytes(self.choices[each]))
        apart = filter(self._is_apart, itertools.pairwise(known))
        gaps = sorted(apart, key=self._width, reverse=True)
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

    def _is_apart(self, gap: Sequence[Candidate]) -> bool:
        smaller, larger = (self.menu.bytes(self.choices[each]) for each in gap)
        return larger >= _APART * smaller

    def _width(self, gap: Sequence[Candidate]) -> float:
        """Return how many times the loss falls, as far as that is of interest."""
        high, low = (self._losses[each] for each in gap)
        return min(high, _HOPELESS) / max(low, _HARDLY_ANY)

    def _begun_as(self, smaller: list[int], larger: list[int], choice: list[int]) -> list[int]:
        """Return the choice with a beginning that a neighbour shares with others: it runs once."""
        begun = list(choice)
        like = max(larger, smaller, key=lambda each: len(self._shared(each)))
        for unit in self._shared(like):
            begun[unit] = like[unit]
        return begun

    def _shared(self, choice: list[int]) -> list[int]:
        """Return the first units for which another choice has the same options as this one."""
        others = (each for each in self.choices.values() if each != choice)
        return max((self._alike(choice, each) for each in others), key=len, default=[])

    def _alike(self, one: list[int], other: list[int]) -> list[int]:
        """Return the first units for which both choices have the same options."""
        return list(itertools.takewhile(lambda unit: one[unit] == other[unit], self._light))

    @functools.cached_property
    def _light(self) -> list[int]:
        """The first units, in the order of the graph, which hold little of what is stored."""
        order = np.argsort(self.menu.positions, kind="stable")
        held = np.cumsum(self.menu.sizes.max(axis=1)[order])
        return [int(unit) for unit in order[held <= _LIGHT * held[-1]]]
