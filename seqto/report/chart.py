"""The scatter of a page as plain numbers and texts; the page's script only places them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seqto.figures import is_known
from seqto.report.info import is_far, shown_range

FRONT, OTHER, FLOAT = "front", "other", "float"


@dataclass(frozen=True)
class Dot:
    """A model on the chart: `x` has its place on each axis to choose from, None where unknown.

    `facts` are what a person reads of it, `low` and `high` the 95 % interval of `y`, `label` is
    written beside it, `layers` names the entry of the page's data that has its layers. `beyond` is
    the label instead where the dot lies beyond an axis, one for each to choose from.
    """

    title: str
    kind: str
    x: tuple[float | None, ...]
    y: float | None
    facts: tuple[tuple[str, str], ...] = ()
    low: float | None = None
    high: float | None = None
    label: str = ""
    layers: str | None = None
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Dots of one colour and shape, whose front is joined by a line."""

    name: str
    dots: tuple[Dot, ...]


def chart(series: Sequence[Series], x_titles: Sequence[str], y_title: str) -> dict[str, Any]:
    """Return the chart ready for JSON, with axes that fit the fronts and the float models."""
    dots = [dot for each in series for dot in each.dots]
    axes = [
        {"at": at, "title": title, "range": _range([dot.x[at] for dot in dots], dots, head=0.08)}
        for at, title in enumerate(x_titles)
    ]
    return {
        "x": [each for each in axes if each["range"]],
        "y": {"title": y_title, "range": _range([dot.y for dot in dots], dots, head=0.15)},
        "series": [asdict(each) for each in series],
    }


def _range(
    values: Sequence[float | None], dots: Sequence[Dot], head: float
) -> tuple[float, float] | None:
    """Return an axis that a few hopeless candidates cannot stretch; None without a front on it."""
    known = [(value, dot.kind) for value, dot in zip(values, dots, strict=True) if is_known(value)]
    front = [value for value, kind in known if kind == FRONT]
    if not front:
        return None
    near = [value for value, kind in known if kind == FLOAT and not is_far(value, front)]
    others = [value for value, kind in known if kind == OTHER]
    low, high = shown_range([*front, *near], others, head)
    assert math.isfinite(low) and math.isfinite(high)
    return low, high
