"""Precisions by integer program: the least predicted harm within each size budget."""

import functools
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.phases import counted
from seqto.search.alike import begun_alike
from seqto.search.gaps import Gaps
from seqto.search.greedy import exchanges
from seqto.search.options import Menu
from seqto.search.planned import Planned
from seqto.search.timed import timed_solutions
from seqto.types import Goal, LatencyModel, LayerScore, Trial

_HOPELESS, _HARDLY_ANY = 0.25, 2e-4
"""The divergences between which candidates may be worth their evaluation."""

_GAP = 1e-3
"""By which share the harm of a solution may be above the least one."""


class _WithGaps(Planned):
    """A list that grows where what was measured leaves a gap."""

    _gaps: Gaps | None = None

    def tell(self, trial: Trial) -> None:
        """After the last one, add a budget where the loss falls too far between two of them."""
        if self._gaps is None:
            return
        self._gaps.tell(trial)
        if not self._pending and (added := self._gaps.next()) is not None:
            self.plan([added])


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class BudgetSearch(_WithGaps):
    """The best choice for each of several size budgets, from the smallest model to the float one.

    The layers' harms nearly add up. So the best choice for a budget is the solution of a small
    integer program, which takes milliseconds, and only these solutions are measured; then a few
    more, where what was measured leaves a gap.
    """

    name: str = "budget"
    budgets: Annotated[int, Field(ge=2)] | None = None
    evaluations: Annotated[int, Field(ge=3)] = 8
    screens: Annotated[int, Field(ge=1)] = 16
    alike: Annotated[float, Field(ge=0)] = 0.005

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Solve the program for every budget."""
        self.plan([])
        self._gaps = None
        if not ranking:
            return
        menu = Menu(ranking)
        choices = begun_alike(menu, solutions(menu, self._budgets), self.alike)
        planned = {menu.candidate(each): each for each in choices}
        self.plan(planned)
        solve = functools.partial(_solve, menu)
        self._gaps = Gaps(menu, planned, solve)

    def start_timed(self, ranking: Sequence[LayerScore], latency: LatencyModel, goal: Goal) -> None:
        """Solve the program that knows latency, for as many harms as there are budgets."""
        self.plan([])
        self._gaps = None
        if not ranking:
            return
        menu = Menu(ranking)
        self.plan(map(menu.candidate, timed_solutions(menu, latency, goal, self._budgets)))

    @property
    def _budgets(self) -> int:
        # A few show where losses fall; gaps are filled there.
        return self.budgets or max(self.evaluations - 1, 6)


def solutions(menu: Menu, budgets: int) -> list[list[int]]:
    """Return the best choice for each of `budgets` sizes, from the smallest model up."""
    known = landmarks(menu, budgets)
    smaller = counted("choosing candidates", known[:-1])
    return [*(_solve(menu, menu.bytes(each), each) for each in smaller), known[-1]]


def landmarks(menu: Menu, count: int) -> list[list[int]]:
    """Return `count` choices along the greedy path; their sizes become the budgets.

    They run from the smallest model to the float one in even steps of the logarithm of harm, over
    the range between hopeless and hardly any, where the first bytes spent help most.
    """
    way = exchanges(menu)
    harms = np.array([menu.harm(each) for each in way])
    high = min(harms[0], _HOPELESS)
    matter = harms[(harms >= min(_HARDLY_ANY, high / 10)) & (harms <= high)]
    if len(matter) < len(way) // 4:
        # Costs that are not divergences have another scale.
        matter = harms
    matter = matter[matter > 0]
    if not len(matter):
        return [way[0], menu.unchanged()]
    targets = np.linspace(np.log(matter[0]), np.log(matter[-1]), count - 2)
    logs = np.log(np.maximum(harms, matter[-1] / 2))
    places = [int(np.abs(logs - target).argmin()) for target in targets]
    return [way[0], *(way[place] for place in places), menu.unchanged()]


def _solve(menu: Menu, budget: float, known: list[int]) -> list[int]:
    """Return each unit's option such that the total harm is least within `budget` bytes.

    `known` is a choice that fits the budget.
    """
    # scipy takes half a second to import, and a wrong word should be told before.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, vstack

    harm = menu.harm(known)
    if harm <= 0:
        return known
    # Costs are relative to the known choice's harm, because the solver ignores differences below
    # 1e-6. They are capped, because an option worse than that whole choice is never chosen.
    costs = np.minimum(menu.costs / harm, 2.0)
    layers, options = costs.shape
    one_each = csr_array(
        (
            np.ones(layers * options),
            (np.repeat(np.arange(layers), options), np.arange(layers * options)),
        )
    )
    size = csr_array(menu.sizes.reshape(1, -1))
    result = milp(
        costs.reshape(-1),
        integrality=np.ones(layers * options),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            vstack([one_each, size]),
            np.append(np.ones(layers), 0),
            np.append(np.ones(layers), budget),
        ),
        # Nearly the best is found at once; with many precisions, to prove more takes long.
        options={"mip_rel_gap": _GAP},
    )
    if result.x is None:
        return known
    return [int(choice) for choice in result.x.reshape(layers, options).argmax(axis=1)]
