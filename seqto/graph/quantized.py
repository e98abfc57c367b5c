"""What is quantized in a candidate, as its graph shows it."""

from seqto.types import Model

QUANTIZING = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "ConvInteger",
    "MatMulInteger",
)
"""Operations that only quantized models have."""

_SUFFIX = "_quant"
"""What ONNX Runtime adds to the name of a layer that it makes an integer operation of."""


def operations(model: Model) -> set[str]:
    """Return the operations of the graph."""
    return {node.op_type for node in model.proto.graph.node}


def quantized_nodes(model: Model) -> dict[str, str]:
    """Return the layers whose weights are dequantized, or are integers, with their operations."""
    nodes = model.proto.graph.node
    dequantized = {
        name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output
    }
    found = {}
    for node in nodes:
        if node.op_type.endswith("Integer"):
            found[node.name.removesuffix(_SUFFIX)] = node.op_type
        elif node.op_type not in QUANTIZING and dequantized & set(node.input[1:]):
            found[node.name] = node.op_type
    return found
