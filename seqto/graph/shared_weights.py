"""Signed 8-bit weights that several nodes read, in a form that every CPU can load.

With exact kernels on an x86 CPU without VNNI, ONNX Runtime makes signed weights unsigned, once for
each node that reads one, always under the same name: then the session does not load.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.links import Links
from seqto.graph.nodes import initializers, replace_nodes, tensor_names, unused_name

_BEYOND = 2**40
"""More than any axis has: a slice up to here is the whole."""


def read_apart(graph: onnx.GraphProto) -> None:
    """Give all readers of a dequantized int8 constant but the first a dequantized one of their own.

    The values are stored once: the others are slices of them, which ONNX Runtime folds when it
    loads the model. Each slice has another end, or they would be taken for the same.
    """
    constants = initializers(graph)
    dequantized = [node for node in graph.node if _is_signed_constant(node, constants)]
    if not dequantized:
        # As in each model of a layer alone, of which there are as many as layers.
        return
    links = Links(graph)
    shared = {
        node.output[0]: node for node in dequantized if len(links.readers(node.output[0])) > 1
    }
    if not shared:
        return
    taken = tensor_names(graph)
    counts = dict.fromkeys(shared, 0)
    nodes: list[onnx.NodeProto] = []
    for node in links.nodes:
        for at, name in enumerate(node.input):
            if name in shared:
                counts[name] += 1
                if counts[name] > 1:
                    own = unused_name(f"{name}_{counts[name]}", taken)
                    nodes += _own(graph, shared[name], constants, own, counts[name])
                    node.input[at] = own
        nodes.append(node)
    replace_nodes(graph, nodes)


def _is_signed_constant(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    if node.op_type != "DequantizeLinear" or node.input[0] not in constants:
        return False
    return bool(constants[node.input[0]].data_type == TensorProto.INT8)


def _own(
    graph: onnx.GraphProto,
    shared: onnx.NodeProto,
    constants: dict[str, onnx.TensorProto],
    name: str,
    number: int,
) -> list[onnx.NodeProto]:
    """Return the nodes that dequantize a constant once more, under this name."""
    limits = {f"{name}_from": 0, f"{name}_to": _BEYOND + number}
    for each, value in limits.items():
        graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), each))
    inputs = [f"{name}_values", *shared.input[1:]]
    if len(inputs) > 2:
        # The zero point is made unsigned, too.
        zero = graph.initializer.add()
        zero.CopyFrom(constants[shared.input[2]])
        zero.name = inputs[2] = f"{name}_zero"
    own = helper.make_node("DequantizeLinear", inputs, [name], name)
    own.attribute.extend(shared.attribute)
    sliced = helper.make_node("Slice", [shared.input[0], *limits], inputs[:1], inputs[0])
    return [sliced, own]
