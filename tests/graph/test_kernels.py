"""Which operations ONNX Runtime makes of a model's nodes."""

import pytest
from onnx_models import matmul_add, residual
from quantizable_models import random_samples
from suite_quantizers import Prepared

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.prepare import prepare
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Kernel


def test_fused_nodes_have_one_kernel() -> None:
    kernels = OnnxRuntimeDevice().kernels(prepare(residual()))
    assert kernels["left"] == kernels["left_relu"] == Kernel("left", "FusedConv")
    assert kernels["stem"].name != kernels["left"].name
    assert {each.is_integer for each in kernels.values()} == {False}


def test_nodes_that_lose_their_name_are_found_by_what_they_make() -> None:
    model = matmul_add()
    kernels = OnnxRuntimeDevice().kernels(model)
    assert [kernels[node.name].op_type for node in model.proto.graph.node] == ["Gemm", "Gemm"]


@pytest.mark.parametrize(
    ("quantizer", "operation"),
    [(StaticQuantizer(), "QLinearConv"), (DynamicQuantizer(), "ConvInteger")],
)
def test_quantized_layers_run_in_integers(
    quantizer: StaticQuantizer | DynamicQuantizer, operation: str
) -> None:
    floating = prepare(residual())
    prepared = Prepared(quantizer, floating, random_samples(floating))
    kernels = OnnxRuntimeDevice().kernels(prepared.excluding("right"))
    integer = {each.op_type for each in kernels.values() if each.is_integer}
    assert operation in integer
    assert not kernels["right"].is_integer


def test_rounding_is_no_integer_arithmetic() -> None:
    assert not Kernel("q", "QuantizeLinear").is_integer
    assert not Kernel("d", "DequantizeLinear").is_integer
    assert Kernel("g", "QGemm").is_integer
