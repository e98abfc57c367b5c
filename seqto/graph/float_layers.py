"""Keeps layers in float that ONNX Runtime would quantize when it loads the model.

Where a Conv, ConvTranspose or Gemm with float weights lies between a DequantizeLinear and a
QuantizeLinear, ONNX Runtime's WeightBiasQuantization quantizes the weights at load, with one scale
per tensor: the file is as large as with float weights, but the layer runs in 8 bits.
"""

from collections.abc import Collection

import onnx
from onnx import helper

from seqto.graph.links import Links
from seqto.graph.nodes import replace_nodes, tensor_names, unused_name

_QUANTIZED_AT_LOAD = ("Conv", "ConvTranspose", "Gemm")
_SEEN_THROUGH = ("Relu", "Clip")


def keep_in_float(proto: onnx.ModelProto, layers: Collection[str]) -> None:
    """Add a Concat of one input after each of these layers that would be quantized at load.

    Expects a QDQ graph. ONNX Runtime neither looks through a Concat nor removes it, and it costs
    only a copy of the layer's output.
    """
    graph = proto.graph
    found = undone_at_load(graph, layers)
    if not found:
        return
    taken = tensor_names(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        if node.name in found:
            output = node.output[0]
            node.output[0] = unused_name(f"{output}_float", taken)
            name = f"{node.name}_kept_in_float"
            nodes.append(helper.make_node("Concat", [node.output[0]], [output], name, axis=0))
    replace_nodes(graph, nodes)


def undone_at_load(graph: onnx.GraphProto, layers: Collection[str]) -> set[str]:
    """Return those of these layers whose float weights ONNX Runtime would quantize."""
    links = Links(graph)
    return {
        node.name
        for node in graph.node
        if node.name in layers
        and node.op_type in _QUANTIZED_AT_LOAD
        and (maker := links.maker(node.input[0])) is not None
        and maker.op_type == "DequantizeLinear"
        and _is_quantized(node, links)
    }


def _is_quantized(node: onnx.NodeProto, links: Links) -> bool:
    """Return whether only a QuantizeLinear reads the output, directly or after Relu or Clip."""
    while len(readers := links.readers(node.output[0])) == 1:
        (node,) = readers
        if node.op_type not in _SEEN_THROUGH:
            return bool(node.op_type == "QuantizeLinear")
    return False
