"""Which layers of a candidate are quantized, read from its graph."""

from seqto.types import Model

QUANTIZING = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "DynamicQuantizeLSTM",
    "ConvInteger",
    "MatMulInteger",
)
"""Operations that only quantized models contain."""

_SUFFIX = "_quant"
"""What ONNX Runtime appends to a layer's name when it makes it an integer operation."""


def operations(model: Model) -> set[str]:
    """Return the operations of the graph."""
    return {node.op_type for node in model.proto.graph.node}


def quantized_nodes(model: Model) -> dict[str, str]:
    """Return the layers whose weights are integers or dequantized, with their operations."""
    nodes = model.proto.graph.node
    dequantized = {
        name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output
    }
    found = {}
    for node in nodes:
        if node.op_type.endswith("Integer") or node.op_type == "DynamicQuantizeLSTM":
            found[node.name.removesuffix(_SUFFIX)] = node.op_type
        elif node.op_type not in QUANTIZING and dequantized & set(node.input[1:]):
            found[node.name] = node.op_type
    return found
