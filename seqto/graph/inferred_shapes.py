"""The types and shapes of activations, without a copy of the weights."""

from collections.abc import Sequence

import onnx
from onnx import helper

from seqto.graph.files import LARGE_TENSOR
from seqto.types.storage import copy_fields, stored_bytes


def inferred_values(proto: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """Return what onnx infers of the activations; tensors that it cannot tell are missing."""
    light = onnx.ModelProto()
    copy_fields(proto, light, ["graph"])
    copy_fields(proto.graph, light.graph, ["initializer"])
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
