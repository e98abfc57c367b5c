"""Inner tensors of a graph: where they are, and how to make them outputs."""

from collections.abc import Iterable

import onnx
from onnx import helper

from seqto.graph.links import Links
from seqto.graph.nodes import tensor_names, unused_name
from seqto.types import Arrays, Model


def with_outputs(model: Model, names: Iterable[str]) -> Model:
    """Return the model with these inner tensors as further outputs."""
    proto = model.copy_proto()
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in present
    )
    return Model(model.name, proto)


def with_inputs(model: Model, tensors: Arrays) -> tuple[Model, dict[str, str]]:
    """Return the model with these inner tensors as further inputs, of the types of these arrays.

    What makes such a tensor writes another one instead: its name is in the second result.
    """
    proto = model.copy_proto()
    graph = proto.graph
    inputs = {each.name for each in graph.input}
    taken = tensor_names(graph)
    renamed = {}
    for node in graph.node:
        for at, name in enumerate(node.output):
            if name in tensors:
                node.output[at] = renamed[name] = unused_name(f"{name}_made", taken)
    for name, array in tensors.items():
        if name not in inputs:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, None))
    kept = [each for each in graph.output if each.name not in tensors]
    del graph.output[:]
    graph.output.extend(kept)
    return Model(model.name, proto, model.session), renamed


def first_output(node: onnx.NodeProto) -> str:
    """Return the first output that the node has: those of an LSTM may be left out."""
    return str(next(filter(None, node.output)))


def dequantized(links: Links, tensor: str) -> str | None:
    """Return the tensor after the QuantizeLinear and DequantizeLinear behind this one, if any."""
    for node in _readers(links, tensor, "QuantizeLinear"):
        for other in _readers(links, node.output[0], "DequantizeLinear"):
            return str(other.output[0])
    return None


def _readers(links: Links, tensor: str, op_type: str) -> list[onnx.NodeProto]:
    """Return the nodes of this type whose first input is this tensor."""
    return [
        node
        for node in links.readers(tensor)
        if node.op_type == op_type and node.input[0] == tensor
    ]
