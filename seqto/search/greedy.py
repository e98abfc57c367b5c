"""One step at a time: spend bytes where they undo the most harm per byte."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.search.options import Menu
from seqto.search.planned import Planned
from seqto.types import LayerScore


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class GreedySearch(Planned):
    """From the smallest model up, the best single change of a layer's precision at each step."""

    name: str = "greedy"
    step: Annotated[int, Field(ge=1)] = 2
    evaluations: Annotated[int, Field(ge=3)] = 8
    screens: Annotated[int, Field(ge=1)] = 16

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Plan the path from the smallest model to the float one."""
        self.plan([])
        if not ranking:
            return
        menu = Menu(ranking)
        way = exchanges(menu)
        chosen = [*way[:: self.step], way[-1], menu.unchanged()]
        self.plan(map(menu.candidate, chosen))


def exchanges(menu: Menu) -> list[list[int]]:
    """Return the greedy choices from the smallest model up, until no change undoes harm."""
    way = [menu.smallest()]
    while (better := _upgraded(menu, way[-1])) is not None:
        way.append(better)
    return way


def _upgraded(menu: Menu, choice: list[int]) -> list[int] | None:
    """Return the choice after the change that undoes the most harm per byte, or None."""
    rows = np.arange(len(choice))
    prices = menu.sizes - menu.sizes[rows, choice][:, None]
    undone = menu.costs[rows, choice][:, None] - menu.costs
    gains = np.where(prices > 0, undone / np.where(prices > 0, prices, 1), 0)
    row, other = np.unravel_index(gains.argmax(), gains.shape)
    if gains[row, other] <= 0:
        return None
    return [*choice[:row], int(other), *choice[row + 1 :]]
