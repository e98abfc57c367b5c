"""Choices between two neighbours whose likely losses are far apart."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqto.figures import EXPECTED, RUINED, usual_loss
from seqto.search.options import Menu
from seqto.types import Candidate, Trial, TrialState

_WIDE = 1.6
"""From how many times the loss of its larger neighbour on a choice is too far from it."""

_APART = 1.04
"""How many times the bytes of the smaller neighbour the larger one has at least: between choices
that are closer, a loss that falls at once would take all that may be added."""

_FURTHER = 1.15
"""How many times the bytes of the largest choice one beyond it has, if that still loses much: about
a bit more for each weight, which halves the loss."""

_MOST = 5
"""How many choices are added at most."""

_LIGHT = 0.05
"""Which share of the bytes the layers hold at most that choices may begin with alike."""

_HARDLY_ANY = 0.003
"""Gaps between smaller losses are of no interest."""

Solve = Callable[[float, list[int]], list[int]]
"""Returns the best choice within so many bytes, given one that fits."""


@dataclass(eq=False)
class Gaps:
    """Finds where measured choices leave a gap, and what to put there.

    Harms add up only nearly: predicted in even steps, they may fall by a thousand times in one of
    them. A few choices show where the loss falls, and the others are put there, or beyond the
    largest one if that still loses much.
    """

    menu: Menu
    choices: dict[Candidate, list[int]]
    solve: Solve
    _losses: dict[Candidate, float] = field(default_factory=dict)
    _told: set[Candidate] = field(default_factory=set)
    _added: int = 0

    def tell(self, trial: Trial) -> None:
        """Take note of what was measured; the float model is nobody's neighbour."""
        self._told.add(trial.candidate)
        known = trial.state is TrialState.COMPLETE and "divergence" in trial.metrics
        if known and not trial.candidate.is_float:
            usual = usual_loss(trial.metrics["divergence"])
            self._losses[trial.candidate] = trial.metrics.get(EXPECTED, usual)

    def next(self) -> Candidate | None:
        """Return a choice for the widest gap that one fits into; None if no gap is worth it.

        None also while some of the choices are still measured: they may be in the gap.
        """
        if self.choices.keys() - self._told:
            return None
        known = sorted(self._losses, key=lambda each: self.menu.bytes(self.choices[each]))
        between = list(itertools.pairwise(known))
        beyond: list[tuple[Candidate, Candidate | None]] = [(each, None) for each in known[-1:]]
        apart = [gap for gap in (*between, *beyond) if self._is_apart(*gap)]
        wide = [gap for gap in apart if self._fall(*gap) >= _WIDE]
        for gap in sorted(wide, key=lambda gap: self._length(*gap), reverse=True):
            if self._added == _MOST:
                break
            candidate, choice = self._within(*gap)
            if candidate not in self.choices:
                self._added += 1
                self.choices[candidate] = choice
                return candidate
        return None

    def _within(self, smaller: Candidate, larger: Candidate | None) -> tuple[Candidate, list[int]]:
        """Return a choice between two others, or one beyond the largest of all."""
        ends = [self.choices[each] for each in (smaller, larger) if each is not None]
        sizes = [self.menu.bytes(each) for each in ends]
        budget = sum(sizes) / 2 if larger else _FURTHER * sizes[0]
        begun = self._begun_as(ends, self.solve(budget, ends[0]))
        return self.menu.candidate(begun), begun

    def _is_apart(self, smaller: Candidate, larger: Candidate | None) -> bool:
        most = self.choices[larger] if larger else self.menu.unchanged()
        return self.menu.bytes(most) >= _APART * self.menu.bytes(self.choices[smaller])

    def _fall(self, smaller: Candidate, larger: Candidate | None) -> float:
        """Return how many times the loss falls, as far as that is of interest."""
        low = self._losses[larger] if larger else 0.0
        return min(self._losses[smaller], RUINED) / max(low, _HARDLY_ANY)

    def _length(self, smaller: Candidate, larger: Candidate | None) -> float:
        """Return how long the gap is: by how much losses and sizes differ, each as a share.

        Sizes are known, while losses are guessed from a few samples.
        """
        known = [self._log_size(each) for each in self._losses]
        furthest = math.log(_FURTHER)
        grown = self._log_size(larger) - self._log_size(smaller) if larger else furthest
        fallen = math.log(self._fall(smaller, larger)) / math.log(RUINED / _HARDLY_ANY)
        return fallen + grown / max(max(known) - min(known), furthest)

    def _log_size(self, candidate: Candidate) -> float:
        # Estimated bytes of small layers may be none.
        return math.log(max(self.menu.bytes(self.choices[candidate]), 1))

    def _begun_as(self, neighbours: Sequence[list[int]], choice: list[int]) -> list[int]:
        """Return the choice with a beginning that a neighbour shares with others: it runs once.

        Of two neighbours it is the one whose beginning does less harm.
        """
        begun = []
        for like in neighbours:
            begun.append(list(choice))
            for unit in self._shared(like):
                begun[-1][unit] = like[unit]
        return min(begun, key=self.menu.harm)

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
