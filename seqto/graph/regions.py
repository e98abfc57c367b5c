"""Which operations without weights follow the precision of the layers around them."""

from collections.abc import Callable, Collection, Iterable

import onnx

from seqto.graph.links import Links

Step = Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]]
"""From a node to its neighbours in one direction."""


def left_in_float(links: Links, layers: Collection[str], excluded: Collection[str]) -> list[str]:
    """Return the other nodes that have no quantized layer as their nearest before or after them.

    An Add between excluded layers would otherwise still be rounded to 8 bits, and a candidate
    that excludes every layer would not be the float model. Visits each node at most once per
    direction.
    """
    stops = set(layers)
    quantized = stops - set(excluded)
    starts = [node for node in links.nodes if node.name in quantized]
    near = _reached(starts, links.after, stops) | _reached(starts, links.before, stops)
    settled = stops | near
    return [node.name for node in links.nodes if node.name not in settled]


def _reached(starts: Iterable[onnx.NodeProto], step: Step, stops: Collection[str]) -> set[str]:
    """Return the nodes that steps from these nodes lead to before they meet one of the stops."""
    reached: set[str] = set()
    pending = list(starts)
    while pending:
        for node in step(pending.pop()):
            if node.name not in stops and node.name not in reached:
                reached.add(node.name)
                pending.append(node)
    return reached
