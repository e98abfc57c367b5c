"""Short names inside a model: those that exporters give take a fifth of a small file."""

import itertools
import string
from collections.abc import Callable, Iterator

import onnx

from seqto.graph.nodes import reads, subgraphs

_HELPERS = ["Cast", "DequantizeLinear", "Mul", "QuantizeLinear", "Reshape", "Slice", "Transpose"]
"""Operations of the nodes that quantizers add, which they name after a tensor."""

_DIGITS = string.digits + string.ascii_lowercase

Rename = Callable[[str], str]
"""Returns the new name of a tensor."""


def short_names() -> Iterator[str]:
    """Yield short names: a to z, then those of two characters, and so on."""
    for length in itertools.count():
        for first in string.ascii_lowercase:
            for rest in itertools.product(_DIGITS, repeat=length):
                yield "".join((first, *rest))


def shorten_names(graph: onnx.GraphProto) -> None:
    """Rename the graph's tensors, except its inputs and outputs, and nodes named after a tensor.

    Other nodes keep their names: people, and what tells of kernels, know layers by them.
    """
    kept = {each.name for each in (*graph.input, *graph.output)}
    taken = kept.union(node.name for node in graph.node)
    free = (name for name in short_names() if name not in taken)
    short: dict[str, str] = {name: name for name in ("", *kept)}

    def of(name: str) -> str:
        if name not in short:
            short[name] = next(free)
        return short[name]

    # Weights are named when they are read, however many nodes unpack them: candidates that begin
    # alike then have the same names there.
    computed = {each.name for each in graph.input}
    for node in graph.node:
        if not computed.isdisjoint(reads(node)):
            computed.update(node.output)
            for name in (*node.input, *node.output):
                of(name)
    _rename(graph, of)


def _rename(graph: onnx.GraphProto, of: Rename) -> None:
    """Rename the tensors of a graph, and of the graphs inside its nodes, which read them too."""
    for node in graph.node:
        is_known_by_name = node.op_type not in _HELPERS or not _named_after(node)
        node.input[:] = map(of, node.input)
        node.output[:] = map(of, node.output)
        if not is_known_by_name:
            node.name = node.output[0]
        for inner in subgraphs(node):
            _rename(inner, of)
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for each in (*values, *(sparse.values for sparse in graph.sparse_initializer)):
        each.name = of(each.name)
    for note in graph.quantization_annotation:
        note.tensor_name = of(note.tensor_name)
        for parameter in note.quant_parameter_tensor_names:
            parameter.value = of(parameter.value)


def _named_after(node: onnx.NodeProto) -> bool:
    """Tell whether a node is named after a tensor, as seqto and ONNX Runtime do it."""
    by_tensor = (f"{name}_{node.op_type}" for name in (*node.input, *node.output) if name)
    return node.name in node.output or any(map(node.name.startswith, by_tensor))
