"""Rewrites candidates for importers that know fewer operations than ONNX Runtime does.

Expects a candidate as a quantizer makes it; the result computes the same. Weights that are stored
in fewer bits become plain constants; ConvInteger and DynamicQuantizeLinear become several simpler
operations. This is exact: float32 holds every integer that occurs in the sums. MatMulNBits becomes
MatMul, which rounds no activations.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.links import drop_unused
from seqto.graph.nbits import unpack_matmuls
from seqto.graph.nodes import (
    initializers,
    replace_nodes,
    subgraphs,
    tensor_names,
    unused_name,
)
from seqto.graph.unpacking import drop_decoding, replace_by_values
from seqto.types import Model

EXACT = 2**24
"""Below this, float32 holds every integer."""

_LARGEST = 255
"""How far an 8-bit value can be from its zero point."""


def lowered(model: Model) -> Model:
    """Return the model with constants folded and without ConvInteger and DynamicQuantizeLinear."""
    proto = model.copy_proto()
    fold_constants(proto)
    drop_decoding(proto)
    unpack_matmuls(proto)
    exact = split_integer_convolutions(proto) | split_dynamic_quantization(proto)
    skip_casts(proto.graph, exact)
    drop_unused(proto.graph)
    # Shapes inferred for a free batch size do not help an importer that fixes it.
    del proto.graph.value_info[:]
    return Model(model.name, proto)


def fold_constants(proto: onnx.ModelProto) -> None:
    """Replace nodes that depend only on constants by their values, computed by ONNX Runtime."""
    replace_by_values(proto, _constant_nodes(proto.graph))


def _constant_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return copies of the nodes that read nothing but constants, in the order of the graph."""
    known = {"", *initializers(graph)}
    found = []
    for node in graph.node:
        if node.input and known.issuperset(node.input) and not [*subgraphs(node)]:
            known.update(node.output)
            found.append(onnx.NodeProto.FromString(node.SerializeToString()))
    return found


class _Builder:
    """Collects new nodes and constants for a graph, under names that are not taken there."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._taken = tensor_names(graph)
        self.nodes: list[onnx.NodeProto] = []

    def constant(self, values: np.ndarray, name: str) -> str:
        free = self._free(name)
        self._graph.initializer.append(numpy_helper.from_array(values, free))
        return free

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Return the output of a new node."""
        free = self._free(name)
        self.nodes.append(helper.make_node(op_type, inputs, [free], free, **attributes))
        return free

    def rename_last(self, output: str) -> None:
        """Rename the output of the last node."""
        self.nodes[-1].output[0] = output

    def _free(self, name: str) -> str:
        free = unused_name(name, self._taken)
        self._taken.add(free)
        return free


def skip_casts(graph: onnx.GraphProto, exact: dict[str, str]) -> None:
    """Read the floats that hold the integers of `exact` wherever these are cast to floats again.

    To cast them takes an importer a dozen operations, which look for infinities and other ranges.
    """
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in exact and _is_to_float(node):
            node.op_type, node.input[0] = "Identity", exact[node.input[0]]
            del node.attribute[:]


def _is_to_float(cast: onnx.NodeProto) -> bool:
    return any(each.name == "to" and each.i == TensorProto.FLOAT for each in cast.attribute)


def split_integer_convolutions(proto: onnx.ModelProto) -> dict[str, str]:
    """Replace each ConvInteger by float convolutions of the integers, exact in float32.

    Return the names of integers that floats hold as well, with the names of those.
    """
    graph = proto.graph
    constants = initializers(graph)
    builder = _Builder(graph)
    exact: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "ConvInteger" and node.input[1] in constants:
            exact |= _split_convolution(node, constants, builder)
        else:
            builder.nodes.append(node)
    replace_nodes(graph, builder.nodes)
    return exact


def _split_convolution(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], builder: _Builder
) -> dict[str, str]:
    given, output = node.input[0], node.output[0]
    zero = node.input[2] if len(node.input) > 2 else ""
    values = builder.node("Cast", [given], f"{output}_values", to=TensorProto.FLOAT)
    if zero:
        offset = builder.node("Cast", [zero], f"{output}_zero", to=TensorProto.FLOAT)
        values = builder.node("Sub", [values, offset], f"{output}_centered")
    parts = []
    for scale, weight in _exact_parts(_centered_weight(node, constants)):
        stored = builder.constant(weight, f"{output}_weight")
        product = builder.node("Conv", [values, stored], f"{output}_product")
        builder.nodes[-1].attribute.extend(node.attribute)
        whole = builder.node("Cast", [product], f"{output}_whole", to=TensorProto.INT32)
        if scale != 1:
            factor = builder.constant(np.array(scale, np.int32), f"{output}_factor")
            whole = builder.node("Mul", [whole, factor], f"{output}_scaled")
        parts.append(whole)
    total = parts[0]
    for part in parts[1:]:
        total = builder.node("Add", [total, part], f"{output}_total")
    builder.rename_last(output)
    # The sum of several parts may be beyond what a float holds.
    return {output: product} if len(parts) == 1 else {}


def _centered_weight(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> np.ndarray:
    """Return a ConvInteger's weight minus its zero point."""
    weight = numpy_helper.to_array(constants[node.input[1]]).astype(np.int32)
    if len(node.input) < 4 or not node.input[3]:
        return weight
    zero = numpy_helper.to_array(constants[node.input[3]]).astype(np.int32)
    return weight - zero.reshape(-1, *[1] * (weight.ndim - 1)) if zero.ndim else weight - zero


def _exact_parts(weight: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield scales and weights that add up to this weight, each with exact sums in float32.

    The sum over many inputs may be too large for that: then the weight's upper and lower bits are
    convolved separately.
    """
    for bits in (9, 5, 3, 2, 1):
        base, rest, parts = 2**bits, weight, []
        for place in range(-(-9 // bits)):
            digit = np.fmod(rest, base)
            parts.append((base**place, digit.astype(np.float32)))
            rest = (rest - digit) // base
        axes = tuple(range(1, weight.ndim))
        if all(np.abs(part).sum(axis=axes).max() * _LARGEST < EXACT for _, part in parts):
            break
    for scale, part in parts:
        if part.any() or scale == 1:
            yield scale, part


def split_dynamic_quantization(proto: onnx.ModelProto) -> dict[str, str]:
    """Replace each DynamicQuantizeLinear by the operations that ONNX Runtime's kernel performs.

    Return the names of integers that floats hold as well, with the names of those.
    """
    graph = proto.graph
    builder = _Builder(graph)
    exact: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            exact |= _split_quantization(node, builder)
        else:
            builder.nodes.append(node)
    replace_nodes(graph, builder.nodes)
    return exact


def _split_quantization(node: onnx.NodeProto, builder: _Builder) -> dict[str, str]:
    given, (quantized, scale, zero) = node.input[0], node.output
    none = builder.constant(np.array(0, np.float32), f"{scale}_none")
    one = builder.constant(np.array(1, np.float32), f"{scale}_one")
    most = builder.constant(np.array(_LARGEST, np.float32), f"{scale}_most")
    high = builder.node("ReduceMax", [given], f"{scale}_high", keepdims=0)
    low = builder.node("ReduceMin", [given], f"{scale}_low", keepdims=0)
    # Not Max and Min, which TVM computes over a copy of both.
    high = builder.node("Clip", [high, none], f"{scale}_top")
    low = builder.node("Clip", [low, "", none], f"{scale}_bottom")
    span = builder.node("Sub", [high, low], f"{scale}_span")
    step = builder.node("Div", [span, most], f"{scale}_step")
    # If all values are zero, any scale is right except zero.
    flat = builder.node("Equal", [span, none], f"{scale}_flat")
    builder.node("Where", [flat, one, step], scale)
    builder.rename_last(scale)
    below = builder.node("Div", [low, scale], f"{zero}_below")
    shift = builder.node("Sub", [none, below], f"{zero}_shift")
    shift = builder.node("Clip", [shift, none, most], f"{zero}_clipped")
    shift = builder.node("Round", [shift], f"{zero}_rounded")
    builder.node("Cast", [shift], zero, to=TensorProto.UINT8)
    builder.rename_last(zero)
    steps = builder.node("Div", [given, scale], f"{quantized}_steps")
    steps = builder.node("Round", [steps], f"{quantized}_rounded")
    steps = builder.node("Add", [steps, shift], f"{quantized}_shifted")
    steps = builder.node("Clip", [steps, none, most], f"{quantized}_clipped")
    builder.node("Cast", [steps], quantized, to=TensorProto.UINT8)
    builder.rename_last(quantized)
    return {zero: shift, quantized: steps}
