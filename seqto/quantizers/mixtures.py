"""Activations in which values of very different sizes meet: 256 steps are too few for them.

A mask of -1e9 added to scores of attention, or boxes in pixels beside scores in one tensor: in
8 bits the smaller values are all the same. No layer is to blame, so no ranking would find it.
"""

import math
from collections.abc import Collection, Iterable

import onnx

from seqto.graph.links import Links
from seqto.types import Ranges

_MIXING = ("Add", "Concat", "Max", "Min", "Sub", "Sum", "Where")
"""Operations whose output has values of each of their inputs, or their sums."""

_MOVING = (
    *("Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"),
    "Unsqueeze",
)
"""Operations that only move the values of their first input."""

_STEPS = 4
"""An input that would have fewer of its output's 256 steps is lost in it."""


def too_mixed(links: Links, ranges: Ranges, layers: Collection[str]) -> list[str]:
    """Return the operations besides layers that make or read such activations."""
    wide = (
        node.output[0] for node in links.nodes if node.op_type in _MIXING and _loses(node, ranges)
    )
    return _around(links, wide, layers)


def not_finite(links: Links, ranges: Ranges, layers: Collection[str]) -> list[str]:
    """Return the operations besides layers around activations that are infinite somewhere."""
    infinite = (name for name, each in ranges.items() if not all(map(math.isfinite, each)))
    return _around(links, infinite, layers)


def _around(links: Links, tensors: Iterable[str], layers: Collection[str]) -> list[str]:
    """Return who makes or reads these tensors, or reads what was only moved from them."""
    pending = list(tensors)
    seen: set[str] = set()
    found: dict[str, None] = {}
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        for node in (*links.readers(tensor), links.maker(tensor)):
            if node is None or node.name in layers:
                continue
            found[node.name] = None
            if node.op_type in _MOVING and tensor == node.input[0]:
                pending.extend(node.output)
    return sorted(found)


def _loses(node: onnx.NodeProto, ranges: Ranges) -> bool:
    """Tell whether one of the inputs would have too few steps of the output."""
    if node.output[0] not in ranges:
        return False
    step = _width(ranges, node.output[0]) / 256
    # Constants have no range here: they are not what is lost.
    widths = [_width(ranges, name) for name in node.input if name in ranges]
    return any(0 < width < _STEPS * step for width in widths)


def _width(ranges: Ranges, name: str) -> float:
    low, high = ranges[name]
    # As quantizers do it, zero is always inside.
    return max(high, 0.0) - min(low, 0.0)
