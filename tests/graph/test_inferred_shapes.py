"""Types and shapes of activations, without the weights."""

import onnx
from onnx_models import residual
from quantizable_models import mobile, wide
from suite_quantizers import prepared_residual

from seqto.graph.inferred_shapes import inferred_values
from seqto.graph.prepare import prepare
from seqto.quantizers.static import StaticQuantizer


def test_they_are_what_onnx_infers_from_the_whole_model() -> None:
    for model in (residual(), mobile(), wide()):
        proto = model.proto
        whole = onnx.shape_inference.infer_shapes(proto).graph.value_info
        assert {each.name: each.type.SerializeToString() for each in inferred_values(proto)} == {
            each.name: each.type.SerializeToString() for each in whole
        }


def test_candidates_are_saved_without_them() -> None:
    prepared = prepared_residual(StaticQuantizer())
    assert prepare(residual()).proto.graph.value_info
    quantized = prepared.excluding("left")
    assert not quantized.proto.graph.value_info
    quantized_types = {each.name: each.type for each in inferred_values(quantized.proto)}
    assert quantized_types["x_QuantizeLinear_Output"].tensor_type.elem_type == 2
