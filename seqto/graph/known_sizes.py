"""Decides on branches by what is known of shapes, so that layers come out of an If.

PyTorch exports a test such as `x.dim() == 2` as an If over Size and Shape. ONNX Runtime folds a
Shape only if all dimensions are known, though a test may ask for one that is, or for the rank.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.branches import inline_branches
from seqto.graph.inferred_shapes import inferred_values
from seqto.graph.links import Links
from seqto.graph.nodes import attribute, replace_nodes, subgraphs

Dims = tuple[int | None, ...]

_FEW = 16
"""More indices than a shape has dimensions are for something else."""


def take_known_branches(proto: onnx.ModelProto) -> None:
    """Replace each If that constants, sizes or ranks decide on by the branch that it takes."""
    inline_branches(proto)
    # The branch that is taken may itself ask for sizes, which are known only now.
    while fold_known_sizes(proto):
        inline_branches(proto)


def fold_known_sizes(proto: onnx.ModelProto) -> bool:
    """Make the sizes and ranks that are known constants; return whether there were any.

    Only in a model with graphs inside nodes: in all others, ONNX Runtime folds what matters.
    """
    if not any(True for node in proto.graph.node for _ in subgraphs(node)):
        return False
    values = (*proto.graph.input, *inferred_values(proto))
    dims = {each.name: found for each in values if (found := _dims(each)) is not None}
    return _fold(proto.graph, dims, {})


def _fold(
    graph: onnx.GraphProto, dims: Mapping[str, Dims], outer: Mapping[str, np.ndarray]
) -> bool:
    """Fold sizes in this graph and in those inside it, which see its tensors."""
    constants = {**outer, **_small_integers(graph)}
    links = Links(graph)
    folded: dict[str, np.ndarray] = {}
    for node in links.nodes:
        found = _size(node, links, dims, constants)
        if found is not None and node.output[0] not in links.outputs:
            folded[node.output[0]] = found
    graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in folded.items())
    replace_nodes(graph, [node for node in links.nodes if node.output[0] not in folded])
    links = Links(graph)
    read = [
        node for node in links.nodes if node.op_type != "Shape" or links.is_used(node.output[0])
    ]
    replace_nodes(graph, read)
    inside = [_fold(each, dims, constants) for node in graph.node for each in subgraphs(node)]
    return bool(folded) or any(inside)


def _size(
    node: onnx.NodeProto,
    links: Links,
    dims: Mapping[str, Dims],
    constants: Mapping[str, np.ndarray],
) -> np.ndarray | None:
    """Return what a Size or Gather of a Shape gives, if that is known."""
    shape = links.maker(node.input[0]) if node.input else None
    if shape is None or not _is_whole_shape(shape):
        return None
    known = dims.get(shape.input[0])
    if known is None:
        return None
    if node.op_type == "Size":
        return np.array(len(known), np.int64)
    if node.op_type != "Gather" or node.input[1] not in constants or attribute(node, "axis", 0):
        return None
    indices = constants[node.input[1]]
    chosen = [known[each] for each in indices.reshape(-1)]
    return None if None in chosen else np.array(chosen, np.int64).reshape(indices.shape)


def _small_integers(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Return the graph's constants that may be indices."""
    tensors = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            tensors.update(
                (node.output[0], each.t) for each in node.attribute if each.HasField("t")
            )
    return {
        name: numpy_helper.to_array(each)
        for name, each in tensors.items()
        if each.data_type == onnx.TensorProto.INT64 and math.prod(each.dims) < _FEW
    }


def _is_whole_shape(node: onnx.NodeProto) -> bool:
    """Tell whether the node is the Shape of all axes; from opset 15 on, it may be that of some."""
    part = attribute(node, "start", 0) or any(each.name == "end" for each in node.attribute)
    return node.op_type == "Shape" and not part


def _dims(value: onnx.ValueInfoProto) -> Dims | None:
    """Return the dimensions of a tensor, None for free ones; None if even the rank is unknown."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(each.dim_value if each.dim_value > 0 else None for each in tensor.shape.dim)
