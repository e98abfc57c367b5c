"""One step at a time: give back the bytes that undo the most harm for their price."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.search.options import Menu
from seqto.search.planned import Planned
from seqto.types import LayerScore


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class GreedySearch(Planned):
    """From the smallest model up, each time the layer and precision of the best exchange."""

    name: str = "greedy"
    step: Annotated[int, Field(ge=1)] = 2
    evaluations: Annotated[int, Field(ge=3)] = 8
    screens: Annotated[int, Field(ge=1)] = 16

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Lay out the way from the smallest model to the float one."""
        self.plan([])
        if not ranking:
            return
        menu = Menu(ranking)
        way = exchanges(menu)
        chosen = [*way[:: self.step], way[-1], menu.unchanged()]
        self.plan(map(menu.candidate, chosen))


def exchanges(menu: Menu) -> list[list[int]]:
    """Return the choices from the smallest model up, as long as an exchange undoes harm."""
    way = [menu.smallest()]
    while (better := _upgraded(menu, way[-1])) is not None:
        way.append(better)
    return way


def _upgraded(menu: Menu, choice: list[int]) -> list[int] | None:
    """Return the choice after the exchange that undoes the most harm a byte, if any undoes harm."""
    best, gain = None, 0.0
    for row, at in enumerate(choice):
        for other in range(len(menu.precisions)):
            price = menu.sizes[row, other] - menu.sizes[row, at]
            undone = menu.costs[row, at] - menu.costs[row, other]
            if price > 0 and undone / price > gain:
                best, gain = (row, other), undone / price
    if best is None:
        return None
    row, other = best
    return [*choice[:row], other, *choice[row + 1 :]]
