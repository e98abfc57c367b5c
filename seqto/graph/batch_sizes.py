"""The batch size in the shape of a Reshape, as the 0 that means: as it is.

Exporters ask a tensor for its batch size, and put that in front of the other sizes. ONNX Runtime
before 1.29 keeps these nodes, which are none of the model's work.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.links import Links, drop_unused
from seqto.graph.nodes import attribute, initializers, replace_nodes, tensor_names, unused_name


def keep_batch_sizes(graph: onnx.GraphProto) -> None:
    """Give constant shapes to the Reshapes that only keep the batch size, and drop what made them.

    Expects inferred shapes.
    """
    links, constants, batches = Links(graph), initializers(graph), _batch_names(graph)
    taken, changed = tensor_names(graph), False
    for node in graph.node:
        sizes = _sizes(node, links, constants, batches)
        if sizes is not None:
            name = unused_name(f"{node.input[1]}_constant", taken)
            graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
            node.input[1] = name
            taken.add(name)
            changed = True
    if changed:
        _drop_unread(graph, {"Concat", "Unsqueeze", "Gather", "Shape"})


def _batch_names(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the name of each tensor's first size, of those that have one instead of a number."""
    values = (*graph.input, *graph.value_info)
    shapes = {each.name: each.type.tensor_type.shape.dim for each in values}
    return {name: dims[0].dim_param for name, dims in shapes.items() if dims and dims[0].dim_param}


def _sizes(
    node: onnx.NodeProto,
    links: Links,
    constants: dict[str, onnx.TensorProto],
    batches: dict[str, str],
) -> list[int] | None:
    """Return the sizes of a Reshape with 0 for the batch size, or None if it is another node."""
    if node.op_type != "Reshape" or attribute(node, "allowzero", 0):
        return None
    concat = links.maker(node.input[1])
    if concat is None or concat.op_type != "Concat" or len(concat.input) < 2:
        return None
    asked = _asked_for_batch(concat.input[0], links, constants)
    batch = batches.get(node.input[0])
    if batch is None or asked is None or batches.get(asked) != batch:
        return None
    if not all(name in constants for name in concat.input[1:]):
        return None
    rest = [numpy_helper.to_array(constants[name]) for name in concat.input[1:]]
    return [0, *(int(size) for each in rest for size in each)]


def _asked_for_batch(size: str, links: Links, constants: dict[str, onnx.TensorProto]) -> str | None:
    """Return the tensor whose first size this list of one is, or None if it is something else."""
    for op_type in ("Unsqueeze", "Gather", "Shape"):
        node = links.maker(size)
        if node is None or node.op_type != op_type:
            return None
        if op_type == "Gather" and not _is_zero(node.input[1], constants):
            return None
        # A part of a shape need not begin with the batch size.
        if op_type == "Shape" and (attribute(node, "start", 0) or attribute(node, "end", 1) < 1):
            return None
        size = node.input[0]
    return size


def _is_zero(name: str, constants: dict[str, onnx.TensorProto]) -> bool:
    return name in constants and numpy_helper.to_array(constants[name]).tolist() == 0


def _drop_unread(graph: onnx.GraphProto, op_types: set[str]) -> None:
    """Remove the nodes of these types that nothing reads, one behind another."""
    links = Links(graph)
    unread = [
        node
        for node in links.nodes
        if node.op_type in op_types and not any(map(links.is_used, node.output))
    ]
    if not unread:
        return
    replace_nodes(graph, [node for node in links.nodes if all(node is not each for each in unread)])
    drop_unused(graph, {name for node in unread for name in node.input})
    _drop_unread(graph, op_types)
