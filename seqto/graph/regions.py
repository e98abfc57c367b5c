"""Which operations without weights follow the precision of the layers around them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

import onnx

Step = Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]]
"""From a node to its neighbours in one direction."""


def weightless_regions(
    graph: onnx.GraphProto, layers: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return, for each node that is no layer, the nearest layers before and after it."""
    producers = {name: node for node in graph.node for name in node.output}
    consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            consumers[name].append(node)

    def before(node: onnx.NodeProto) -> Iterable[onnx.NodeProto]:
        return [producers[name] for name in node.input if name in producers]

    def after(node: onnx.NodeProto) -> Iterable[onnx.NodeProto]:
        return [each for name in node.output for each in consumers[name]]

    return {
        node.name: _nearest(node, before, layers) | _nearest(node, after, layers)
        for node in graph.node
        if node.name not in layers
    }


def left_in_float(
    regions: Mapping[str, frozenset[str]], layers: Collection[str], excluded: Collection[str]
) -> list[str]:
    """Return the nodes that have no quantized layer around them.

    An Add between excluded layers would otherwise still be rounded to 8 bits, and a candidate
    that excludes every layer would not be the float model.
    """
    quantized = set(layers) - set(excluded)
    return [name for name, around in regions.items() if not around & quantized]


def _nearest(node: onnx.NodeProto, step: Step, layers: Collection[str]) -> frozenset[str]:
    """Return the first layers that are met on every way from this node."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = list(step(node))
    while pending:
        each = pending.pop()
        if each.name in layers:
            found.add(each.name)
        elif each.name not in seen:
            seen.add(each.name)
            pending.extend(step(each))
    return frozenset(found)
