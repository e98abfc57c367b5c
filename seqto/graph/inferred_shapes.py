"""The types and shapes of activations, without a copy of the weights."""

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from seqto.graph.files import LARGE_TENSOR
from seqto.types.storage import copy_fields, stored_bytes


def inferred_values(
    proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> Sequence[onnx.ValueInfoProto]:
    """Return what onnx infers of the activations; tensors that it cannot tell are missing.

    If the inputs' `shapes` are given, they replace what the graph declares.
    """
    light = onnx.ModelProto()
    copy_fields(proto, light, ["graph"])
    declared = [] if shapes is None else ["input", "output", "value_info"]
    copy_fields(proto.graph, light.graph, ["initializer", *declared])
    if shapes is not None:
        _declare(proto.graph, light.graph, shapes)
    for tensor in proto.graph.initializer:
        # Shapes depend on the values of small constants only, such as those of a Reshape.
        if stored_bytes(tensor) < LARGE_TENSOR:
            light.graph.initializer.append(tensor)
        else:
            dims = list(tensor.dims)
            light.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, dims)
            )
    return list(onnx.shape_inference.infer_shapes(light).graph.value_info)


def _declare(
    graph: onnx.GraphProto, light: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]
) -> None:
    """Give a graph the inputs of another one with these shapes, and its outputs without any."""
    for value in graph.input:
        kind = value.type.tensor_type.elem_type
        given = value.name in shapes
        light.input.append(
            helper.make_tensor_value_info(value.name, kind, shapes[value.name]) if given else value
        )
    for value in graph.output:
        kind = value.type.tensor_type.elem_type
        light.output.append(helper.make_tensor_value_info(value.name, kind, None))
