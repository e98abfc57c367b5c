"""QuantuneV2's strategy: one decision from the list of layers, without evaluating on the way."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.search.options import Menu
from seqto.search.planned import Planned
from seqto.types import FLOAT16, FLOAT32, INT8, LayerScore

_ROUNDING = 1e-9
"""By how much sums of shares may be off."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class OneShotSearch(Planned):
    """Leaves the top of the list in float, up to a share of the weights' bytes.

    Layers that run as one are taken together. The most harmful layer that is quantized sets the
    limit: every other one gets the smallest precision that does no more harm than that. The fully
    quantized and the float model are measured beside this choice, but do not change it.
    """

    name: str = "oneshot"
    float_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    limit: Annotated[float, Field(ge=0, le=1)] | None = None
    """The constraint on what is left in float, if there is one."""

    screens: int = field(default=0, init=False)
    evaluations: int = field(default=0, init=False)

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Decide."""
        self.plan([])
        if not ranking:
            return
        menu = Menu(ranking)
        share = min(self.float_share, 1.0 if self.limit is None else self.limit)
        base = [_base(menu)] * len(menu.layers)
        choices = [base, decided(menu, share), menu.unchanged()]
        self.plan(map(menu.candidate, choices))


def decided(menu: Menu, float_share: float) -> list[int]:
    """Return the choice with at most this share of the bytes in a higher precision than int8."""
    base = _base(menu)
    left = _top(menu, float_share)
    harms = [menu.costs[row, base] for row in range(len(menu.layers)) if row not in left]
    limit = max(harms, default=0.0)
    return [_smallest(menu, row, base, limit, row in left) for row in range(len(menu.layers))]


def _base(menu: Menu) -> int:
    """Return the precision of a quantized layer: int8, or the smallest one without it."""
    if INT8 in menu.precisions:
        return menu.precisions.index(INT8)
    return int(menu.sizes.sum(axis=0).argmin())


def _top(menu: Menu, share: float) -> set[int]:
    """Return the units from the top of the list that fit into this share of the bytes."""
    sizes = menu.sizes[:, menu.precisions.index(FLOAT32)]
    room = (share + _ROUNDING) * sizes.sum()
    top = set()
    for row, size in enumerate(sizes.tolist()):
        if size <= room:
            top.add(row)
            room -= size
    return top


def _smallest(menu: Menu, row: int, base: int, limit: float, left: bool) -> int:
    """Return the unit's smallest precision within the limit; if it is `left`, one above int8.

    Others are never in float: small weights take fewer bytes as float16 than with scales.
    """
    sizes, costs = menu.sizes[row], menu.costs[row]
    limit = min(limit, costs[base]) if left else limit
    floats = np.array([each in (FLOAT16, FLOAT32) for each in menu.precisions])
    wanted = floats | (sizes > sizes[base]) if left else ~floats
    fitting = np.flatnonzero(wanted & (costs <= limit)).tolist()
    unchanged = menu.precisions.index(FLOAT32)
    return min(fitting, key=lambda at: (sizes[at], costs[at]), default=unchanged)
