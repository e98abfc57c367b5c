"""The layers of a graph, which are nodes with weights, and Gemm rewritten as MatMul."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from seqto.graph.links import drop_unused
from seqto.graph.nodes import attribute, initializers, replace_nodes, tensor_names, unused_name
from seqto.types import Layer, Model

FLOAT_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)

RECURRENT = ("GRU", "LSTM", "RNN")
"""Operations with two weights: for their input, and for their own state."""

LEAST_TABLE_BYTES = 1024
"""Smaller tables take no part in the size of a model; many of them are arithmetic with shapes."""

_WEIGHT_INPUTS = {"Gather": (0,), **dict.fromkeys(RECURRENT, (1, 2))}
"""Which inputs are weights, where it is not the second one alone."""


def weight_layers(model: Model, op_types: Collection[str]) -> tuple[Layer, ...]:
    """Return the nodes of these types whose weights are float initializers, in graph order."""
    constants = initializers(model.proto.graph)
    layers = []
    for node in model.proto.graph.node:
        weights = weights_of(node, constants) if node.op_type in op_types else ()
        if weights:
            size = sum(map(tensor_bytes, weights))
            layers.append(Layer(node.name, node.op_type, size, _as_matrices(node, weights)))
    return tuple(layers)


def weights_of(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> tuple[onnx.TensorProto, ...]:
    """Return the float initializers that are the node's weights."""
    if node.op_type == "MatMul":
        # It may have its constant on either side.
        return (_constants(node, (1,), constants) or _constants(node, (0,), constants))[:1]
    found = _constants(node, _WEIGHT_INPUTS.get(node.op_type, (1,)), constants)
    if node.op_type == "Gather":
        return tuple(table for table in found if _is_table(table))
    return found


def weight_of(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    """Return the first of the node's weights, or None if it has none."""
    return next(iter(weights_of(node, constants)), None)


def _is_table(tensor: onnx.TensorProto) -> bool:
    """Return whether these are rows of values, as the embeddings of words are."""
    return len(tensor.dims) > 1 and tensor_bytes(tensor) >= LEAST_TABLE_BYTES


def _constants(
    node: onnx.NodeProto, positions: Collection[int], constants: Mapping[str, onnx.TensorProto]
) -> tuple[onnx.TensorProto, ...]:
    """Return the float initializers among these inputs of the node."""
    names = [node.input[at] for at in positions if at < len(node.input)]
    found = [constants[name] for name in names if name in constants]
    return tuple(each for each in found if each.data_type in FLOAT_TYPES)


def reduced_axes(node: onnx.NodeProto, weight: onnx.TensorProto) -> tuple[int, ...]:
    """Return the axes of a layer's weight that each of its outputs sums over; a table's row."""
    rank = len(weight.dims)
    if node.op_type == "Gemm":
        return (1,) if attribute(node, "transB", 0) else (0,)
    if node.op_type == "MatMul":
        on_the_right = len(node.input) > 1 and node.input[1] == weight.name
        return (max(rank - 2, 0),) if on_the_right else (rank - 1,)
    if node.op_type in RECURRENT:
        return (rank - 1,)
    return tuple(axis for axis in range(rank) if axis != _output_axis(node, rank))


def _output_axis(node: onnx.NodeProto, rank: int) -> int:
    """Return the axis of a weight along which its outputs lie, or the rows of a table."""
    if node.op_type == "Gather":
        return int(attribute(node, "axis", 0)) % rank
    # The first axis of a convolution's weight is its outputs, of a transposed one its inputs.
    return 1 if node.op_type == "ConvTranspose" else 0


def _as_matrices(node: onnx.NodeProto, weights: Sequence[onnx.TensorProto]) -> tuple[int, ...]:
    """Return how many outputs the weights have, and how many values of each they sum over."""
    reduced = [reduced_axes(node, weight) for weight in weights]
    values = [
        math.prod(weight.dims[axis] for axis in axes)
        for weight, axes in zip(weights, reduced, strict=True)
    ]
    return math.prod(weights[0].dims) // max(values[0], 1), *values


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor's values."""
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return int(math.prod(tensor.dims) * dtype.itemsize)


def gemm_to_matmul(model: Model, least: int = 0) -> Model:
    """Return the model with each plain Gemm of a constant weight as MatMul, and Add for its bias.

    The MatMul keeps the name of the Gemm, and the last of the two nodes the name of its output. A
    Gemm that also scales, or transposes its first input, is not changed; nor is one whose weight is
    a table too, which would have to be there twice, or has fewer than `least` values.
    """
    proto = model.copy_proto()
    graph = proto.graph
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    constants = {each.name for each in graph.initializer if math.prod(each.dims) >= least} - tables
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.extend(_split(node, graph) if _is_plain_gemm(node, constants) else [node])
    weights = {node.input[1] for node in graph.node if node.op_type == "Gemm"}
    replace_nodes(graph, nodes)
    drop_unused(graph, weights)
    return Model(model.name, proto)


def _is_plain_gemm(node: onnx.NodeProto, constants: Collection[str]) -> bool:
    """Tell whether the node is x @ W + b, or x @ W.T + b, with a constant W."""
    if node.op_type != "Gemm" or node.input[1] not in constants:
        return False
    if attribute(node, "alpha", 1) != 1 or attribute(node, "transA", 0):
        return False
    return not _bias(node) or attribute(node, "beta", 1) == 1


def _bias(node: onnx.NodeProto) -> str:
    """Return the name of a Gemm's bias, empty where it has none."""
    return node.input[2] if len(node.input) > 2 else ""


def _split(gemm: onnx.NodeProto, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes that replace this Gemm, and add the tensors they need to the graph."""
    weight, output, bias = gemm.input[1], gemm.output[0], _bias(gemm)
    if attribute(gemm, "transB", 0):
        weight = _transposed(graph, weight)
    if not bias:
        return [helper.make_node("MatMul", [gemm.input[0], weight], [output], gemm.name)]
    product = unused_name(f"{output}_matmul", tensor_names(graph))
    _describe_like(graph, output, product)
    name = unused_name(f"{gemm.name}_bias", {each.name for each in graph.node})
    return [
        helper.make_node("MatMul", [gemm.input[0], weight], [product], gemm.name),
        helper.make_node("Add", [product, bias], [output], name),
    ]


def _transposed(graph: onnx.GraphProto, weight: str) -> str:
    """Return the name of the transposed weight, created once for all layers that share it."""
    constants = initializers(graph)
    values = np.ascontiguousarray(numpy_helper.to_array(constants[weight]).T)
    name = f"{weight}_transposed"
    if name in constants and np.array_equal(numpy_helper.to_array(constants[name]), values):
        return name
    name = unused_name(name, tensor_names(graph))
    graph.initializer.append(numpy_helper.from_array(values, name))
    return name


def _describe_like(graph: onnx.GraphProto, tensor: str, other: str) -> None:
    """Give `other` the type and shape of `tensor`."""
    # Quantizers skip tensors whose type they do not know.
    for value in (*graph.value_info, *graph.output):
        if value.name == tensor:
            described = graph.value_info.add()
            described.CopyFrom(value)
            described.name = other
            return
