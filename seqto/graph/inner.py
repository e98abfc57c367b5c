"""Inner tensors of a graph: where to find them, and how to get at them."""

from collections.abc import Iterable

import onnx

from seqto.types import Model


def with_outputs(model: Model, names: Iterable[str]) -> Model:
    """Return the model with these inner tensors as further outputs."""
    proto = model.copy_proto()
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in present
    )
    return Model(model.name, proto)


def dequantized(model: Model, tensor: str) -> str | None:
    """Return what a tensor becomes behind its pair of QuantizeLinear and DequantizeLinear."""
    nodes = model.proto.graph.node
    for node in nodes:
        if node.op_type == "QuantizeLinear" and node.input[0] == tensor:
            for other in nodes:
                if other.op_type == "DequantizeLinear" and other.input[0] == node.output[0]:
                    return str(other.output[0])
    return None
