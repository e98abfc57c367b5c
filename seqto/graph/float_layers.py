"""Layers left in float that stay so when ONNX Runtime loads the model.

Where a Conv, ConvTranspose or Gemm with float weights lies between a DequantizeLinear and a
QuantizeLinear, ONNX Runtime's WeightBiasQuantization quantizes the weights at load, a scale a
tensor: the file pays for float weights, and the layer runs in 8 bits all the same.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import onnx
from onnx import helper

from seqto.graph.nodes import replace_nodes, unused_name

_QUANTIZED_AT_LOAD = ("Conv", "ConvTranspose", "Gemm")
_SEEN_THROUGH = ("Relu", "Clip")


def keep_in_float(proto: onnx.ModelProto, layers: Collection[str]) -> None:
    """Put a Concat of one input behind each of these layers that would be quantized at load.

    Expects a QDQ graph. ONNX Runtime does not look through a Concat, nor take it out, and it costs
    no more than a copy of the layer's output.
    """
    graph = proto.graph
    found = undone_at_load(graph, layers)
    if not found:
        return
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
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
    producers = {name: node for node in graph.node for name in node.output}
    consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            consumers[name].append(node)
    return {
        node.name
        for node in graph.node
        if node.name in layers
        and node.op_type in _QUANTIZED_AT_LOAD
        and node.input[0] in producers
        and producers[node.input[0]].op_type == "DequantizeLinear"
        and _is_quantized(node, consumers)
    }


def _is_quantized(node: onnx.NodeProto, consumers: Mapping[str, Sequence[onnx.NodeProto]]) -> bool:
    """Return whether all that reads the node's output is one QuantizeLinear, or leads to one."""
    readers = consumers[node.output[0]]
    if len(readers) != 1:
        return False
    (reader,) = readers
    if reader.op_type in _SEEN_THROUGH:
        return _is_quantized(reader, consumers)
    return bool(reader.op_type == "QuantizeLinear")
