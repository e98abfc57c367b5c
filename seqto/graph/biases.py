"""The biases of Gemm in the one shape that quantizers take."""

import onnx

from seqto.graph.links import Links
from seqto.graph.nodes import initializers, tensor_names, unused_name


def flatten_biases(graph: onnx.GraphProto) -> None:
    """Make each constant Gemm bias of shape [1, n] one of shape [n], which computes the same.

    ONNX Runtime's per-channel quantizer fails on the former (its issue 24815).
    """
    links, constants = Links(graph), initializers(graph)
    gemms = [node for node in graph.node if node.op_type == "Gemm" and len(node.input) > 2]
    for name in dict.fromkeys(node.input[2] for node in gemms):
        if name in constants and len(constants[name].dims) == 2 and constants[name].dims[0] == 1:
            _flatten(graph, constants[name], links)


def _flatten(graph: onnx.GraphProto, bias: onnx.TensorProto, links: Links) -> None:
    """Flatten this bias, or a copy of it if others than Gemm's biases read it, too."""
    gemms = [node for node in links.readers(bias.name) if _adds(node, bias.name)]
    if bias.name in links.outputs or not all(
        _adds(node, bias.name) and bias.name not in node.input[:2]
        for node in links.readers(bias.name)
    ):
        given, bias = bias, graph.initializer.add()
        bias.CopyFrom(given)
        bias.name = unused_name(f"{given.name}_flat", tensor_names(graph))
    else:
        _forget_shape(graph, bias.name)
    for node in gemms:
        node.input[2] = bias.name
    del bias.dims[0]


def _adds(node: onnx.NodeProto, tensor: str) -> bool:
    """Tell whether the node is a Gemm with this bias."""
    return node.op_type == "Gemm" and len(node.input) > 2 and node.input[2] == tensor


def _forget_shape(graph: onnx.GraphProto, tensor: str) -> None:
    """Delete what the graph says of a tensor besides its values."""
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name == tensor:
            del graph.value_info[index]
