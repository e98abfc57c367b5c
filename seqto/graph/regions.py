"""Which operations without weights follow the precision of the layers around them."""

from collections.abc import Callable, Collection, Iterable

import onnx

from seqto.graph.clamps import CLAMPS
from seqto.graph.layers import FLOAT_TYPES
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


_FRAGILE = {"Softmax", "LogSoftmax", "Exp", "Log", "Pow", "Sqrt", "Reciprocal"}
_OF_TWO = {"MatMul", "Div"}
"""Fragile where they combine two activations: attention, and normalization spelt out."""

_STURDY = "BatchNormalization"
"""The one normalization that only scales and shifts."""


def better_in_float(graph: onnx.GraphProto, layers: Collection[str]) -> set[str]:
    """Return the operations without weights that are better not quantized, whatever layers are.

    These are attention and normalization, which 8 bits spoil, with all that lies between them and
    the nearest layers: a mask that adds -10000 to some scores would make all others equal. And all
    that follows the last layers: boxes in pixels and scores would get one scale. No byte is lost.
    """
    flow = _FloatFlow(graph)
    # A clamp behind a layer bounds its range, and costs nothing there.
    clamps = {
        node.name
        for node in flow.nodes
        if node.op_type in CLAMPS and any(each.name in layers for each in flow.before(node))
    }
    stops = {*layers, *clamps}
    fragile = [node for node in flow.nodes if node.name not in stops and flow.is_fragile(node)]
    around = _reached(fragile, flow.after, stops) | _reached(fragile, flow.before, stops)
    first = [node for node in flow.nodes if node.name in layers]
    feeding = _reached(first, flow.before, ()) | set(layers)
    last = {node.name for node in flow.nodes} - feeding - clamps
    return around | last | {node.name for node in fragile}


class _FloatFlow:
    """The way of float activations through a graph; other tensors, such as shapes, do not count."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._links = Links(graph)
        self._others = self._links.constants | {
            value.name
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.elem_type not in (0, *FLOAT_TYPES)
        }
        self.nodes = [
            node for node in self._links.nodes if self._floats((*node.input, *node.output))
        ]

    def _floats(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name and name not in self._others]

    def after(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes that read this node's activations."""
        return [each for name in self._floats(node.output) for each in self._links.readers(name)]

    def before(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes whose activations this node reads."""
        makers = map(self._links.maker, self._floats(node.input))
        return [maker for maker in makers if maker is not None]

    def is_fragile(self, node: onnx.NodeProto) -> bool:
        """Return whether 8 bits spoil what this operation computes."""
        if node.op_type in _OF_TWO:
            return len(self._floats(node.input)) > 1
        normalizes = node.op_type.endswith("Normalization") and node.op_type != _STURDY
        return normalizes or node.op_type in _FRAGILE
