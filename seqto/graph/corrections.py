"""Corrects the biases of layers for what rounding their weights does to their mean outputs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from seqto.graph.layers import FLOAT_TYPES, reduced_axes, weight_of
from seqto.graph.links import Links, drop_unused
from seqto.graph.nodes import attribute, initializers, tensor_names, unused_name

_BIAS = 2
"""Which input of a layer is its bias."""

_WORTH_A_BIAS = 512
"""A layer without a bias gets one if its outputs have that many weights: 1 % of their int4."""


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a layer's bias is: input `at` of this node; without a name, if it has none yet.

    The node adds its bias `factor` times as often as the product of input and weight.
    """

    node: onnx.NodeProto
    at: int
    name: str
    dtype: np.dtype
    factor: float = 1.0


def can_be_corrected(
    node: onnx.NodeProto, links: Links, constants: Mapping[str, onnx.TensorProto]
) -> bool:
    """Tell whether this layer has a constant bias, or is worth one of its own."""
    return _place(node, links, constants) is not None


def correct_biases(
    graph: onnx.GraphProto, shifts: Mapping[str, np.ndarray], suffixes: Mapping[str, str]
) -> None:
    """Add these shifts to the outputs of layers, by way of their biases.

    Each layer reads a bias of its own then, whose name ends in its suffix. Layers whose bias is
    not constant stay as they are.
    """
    links, constants = Links(graph), initializers(graph)
    taken = tensor_names(graph) if shifts else set()
    replaced = set()
    for node in graph.node:
        place = _place(node, links, constants) if node.name in shifts else None
        if place is None:
            continue
        values = _bias(place, constants) + shifts[node.name].astype(np.float64) / place.factor
        own = place.name and len(links.readers(place.name)) == 1
        # Not a number behind a shared name: whose it is would depend on the other layers.
        start = place.name if own else f"{node.name}_bias"
        name = unused_name(f"{start}_{suffixes[node.name]}", taken)
        kept = values.astype(place.dtype)
        graph.initializer.append(numpy_helper.from_array(kept, name))
        replaced.add(place.name)
        if place.at == len(place.node.input):
            place.node.input.append(name)
        else:
            place.node.input[place.at] = name
    drop_unused(graph, replaced)


def _bias(place: _Place, constants: Mapping[str, onnx.TensorProto]) -> np.ndarray:
    if not place.name:
        return np.zeros(())
    return numpy_helper.to_array(constants[place.name]).astype(np.float64)


def _place(
    node: onnx.NodeProto, links: Links, constants: Mapping[str, onnx.TensorProto]
) -> _Place | None:
    weight = weight_of(node, constants)
    if weight is None:
        return None
    if node.op_type == "MatMul":
        return _behind(node, weight, links, constants)
    if node.op_type not in ("Conv", "Gemm"):
        return None
    alpha, factor = attribute(node, "alpha", 1), attribute(node, "beta", 1)
    name = node.input[_BIAS] if len(node.input) > _BIAS else ""
    values = int(np.prod([weight.dims[axis] for axis in reduced_axes(node, weight)]))
    known = _is_constant(name, constants) if name else values >= _WORTH_A_BIAS
    if not known or not alpha or not factor:
        return None
    return _Place(node, _BIAS, name, _dtype(weight), factor / alpha)


def _behind(
    node: onnx.NodeProto,
    weight: onnx.TensorProto,
    links: Links,
    constants: Mapping[str, onnx.TensorProto],
) -> _Place | None:
    """Return the constant that an Add adds to the product of a MatMul, one value an output.

    An Add of its own could keep ONNX Runtime from fusing attention.
    """
    readers = links.readers(node.output[0])
    on_the_right = node.input[1] == weight.name
    alone = len(readers) == 1 and node.output[0] not in links.outputs
    if not alone or not on_the_right or readers[0].op_type != "Add":
        return None
    (add,) = readers
    at = 1 if add.input[0] == node.output[0] else 0
    if not _is_constant(add.input[at], constants):
        return None
    *_, outputs = constants[add.input[at]].dims or [1]
    fits = outputs == weight.dims[-1]
    return _Place(add, at, add.input[at], _dtype(weight)) if fits else None


def _dtype(weight: onnx.TensorProto) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(weight.data_type))


def _is_constant(name: str, constants: Mapping[str, onnx.TensorProto]) -> bool:
    return name in constants and constants[name].data_type in FLOAT_TYPES
