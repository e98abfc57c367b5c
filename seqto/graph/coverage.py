"""How much of a model's file its layers hold, and what holds the rest."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx

from seqto.figures.formats import in_bytes, in_percent
from seqto.graph.layers import tensor_bytes, weights_of
from seqto.graph.links import Links
from seqto.graph.nodes import initializers, subgraphs
from seqto.types import Layer, Model

_MOST = 0.9
"""If layers hold this share of the file, the rest does not matter."""

_NAMED = 3
"""How many of the largest other tensors are named."""

_NAMELESS = "a constant"
_STRUCTURE = "nodes and names"


@dataclass(frozen=True)
class Other:
    """Something that no layer holds: mostly a tensor, and the operations that read it."""

    name: str
    size: int
    op_types: tuple[str, ...]

    def __str__(self) -> str:
        """Return its name, its size and what reads it."""
        reads = f", {' and '.join(self.op_types)}" if self.op_types else ""
        return f"{self.name} ({in_bytes(self.size)}{reads})"


@dataclass(frozen=True)
class Coverage:
    """The bytes of the layers' weights, each counted once, and of the whole file."""

    layers: int
    whole: int
    others: tuple[Other, ...]
    """What else is in the file, the largest first."""

    @property
    def share(self) -> float:
        """The share of the file that candidates can make smaller."""
        return self.layers / self.whole if self.whole else 0.0

    def __str__(self) -> str:
        """Return the share in words, with what holds the rest if that is much."""
        text = f"layers hold {in_percent(self.share, 0)} of the file"
        if self.share >= _MOST:
            return text
        return f"{text}; most of the rest is in {', '.join(map(str, self.others[:_NAMED]))}"


def coverage(model: Model, layers: Sequence[Layer]) -> Coverage:
    """Return how much of this model, as a quantizer prepared it, its layers hold."""
    graph = model.proto.graph
    constants = initializers(graph)
    names = {layer.name for layer in layers}
    held = {
        weight.name: tensor_bytes(weight)
        for node in graph.node
        if node.name in names
        for weight in weights_of(node, constants)
    }
    tensors = list(_others(graph, held))
    whole, known = model.size, sum(held.values())
    rest = Other(_STRUCTURE, whole - known - sum(each.size for each in tensors), ())
    others = sorted((*tensors, rest), key=lambda each: (-each.size, each.name))
    return Coverage(known, whole, tuple(others))


def _others(graph: onnx.GraphProto, held: Collection[str]) -> Iterator[Other]:
    """Yield the tensors of the graph, and of graphs inside it, that are not held by layers."""
    links = Links(graph)
    for tensor in graph.initializer:
        if tensor.name not in held:
            readers = sorted({node.op_type for node in links.readers(tensor.name)})
            yield Other(tensor.name, _size(tensor), tuple(readers))
    for node in graph.node:
        for each in node.attribute:
            if each.HasField("t"):
                yield Other(node.name or _NAMELESS, _size(each.t), (node.op_type,))
        for inner in subgraphs(node):
            for other in _others(inner, ()):
                inside = f"inside {node.op_type} {node.name}".rstrip()
                yield Other(other.name, other.size, (*other.op_types, inside))


def _size(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a tensor; of strings, the characters."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    return tensor_bytes(tensor)
