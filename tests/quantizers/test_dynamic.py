"""Dynamic quantization."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import feeds, gemm_model, op_types, run
from onnxruntime.quantization import QuantType, quantize_dynamic
from pydantic import ValidationError
from quantizable_models import mobile, node, random_samples, weights_in
from suite_quantizers import Prepared, QuantizerSuite, prepared_residual

from seqto.errors import ModelError, QuantizationError
from seqto.graph.prepare import prepare
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.types import Model


class TestDynamicQuantizer(QuantizerSuite):
    """The conformance suite."""

    @pytest.fixture
    def quantizer(self) -> DynamicQuantizer:
        """Return the default."""
        return DynamicQuantizer()


def by_onnxruntime(floating: Model, folder: Path, exclude: list[str], **options: Any) -> Model:
    """Return what ORT's own quantize_dynamic makes of the model."""
    path = folder / "by_onnxruntime.onnx"
    quantize_dynamic(floating.copy_proto(), path, nodes_to_exclude=exclude, **options)
    return Model("by_onnxruntime", onnx.load(path))


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_outputs_are_those_of_onnxruntimes_quantize_dynamic(
    per_channel: bool, seed: int | None, tmp_path: Path
) -> None:
    floating = prepare(mobile())
    quantizer = DynamicQuantizer(per_channel=per_channel, feedback=False)
    prepared = Prepared(quantizer, floating, random_samples(floating))
    # ORT renames a Gemm, and then does not know it when it is to be left alone.
    convolutions = [layer.name for layer in prepared.layers if layer.op_type == "Conv"]
    draw = random.Random(seed)
    excluded = [] if seed is None else draw.sample(convolutions, len(convolutions) // 3)
    theirs = by_onnxruntime(
        floating, tmp_path, excluded, per_channel=per_channel, weight_type=QuantType.QUInt8
    )
    ours = prepared.excluding(*excluded)
    inputs = feeds(floating, count=1, seed=9)
    assert not np.array_equal(run(ours, inputs)[0], run(floating, inputs)[0])
    np.testing.assert_array_equal(run(ours, inputs)[0], run(theirs, inputs)[0])


def test_nothing_is_calibrated() -> None:
    assert prepared_residual(DynamicQuantizer()).ranges == {}


def test_excluding_a_gemm_leaves_it_in_float(tmp_path: Path) -> None:
    prepared = prepared_residual(DynamicQuantizer())
    assert node(prepared.model, "head").op_type == "MatMul"
    without = prepared.excluding("head")
    assert "MatMulInteger" in op_types(prepared.excluding())
    assert "MatMulInteger" not in op_types(without)
    assert node(without, "head").op_type == "MatMul"
    # The trap: for ORT itself the exclusion does nothing.
    theirs = by_onnxruntime(prepared.floating, tmp_path, ["head"])
    assert "MatMulInteger" in op_types(theirs)


def test_a_gemm_that_scales_is_only_stored_in_fewer_bits() -> None:
    # ORT has no integer form of it.
    floating = prepare(gemm_model(alpha=0.5))
    prepared = Prepared(DynamicQuantizer(), floating, random_samples(floating))
    assert prepared.names == ["fc"]
    quantized = prepared.excluding()
    assert "MatMulInteger" not in op_types(quantized)
    assert weights_in(quantized, TensorProto.INT8) == {"w_int8_0"}
    assert not weights_in(quantized, TensorProto.FLOAT)
    assert DynamicQuantizer(op_types=["Gemm"]).prepare(floating)[1] == prepared.layers
    with pytest.raises(ModelError, match="no layer left to quantize"):
        DynamicQuantizer(exclude=["op:Gemm"]).prepare(floating)


@pytest.mark.parametrize(
    ("weight_type", "stored"), [("uint8", TensorProto.UINT8), ("int8", TensorProto.INT8)]
)
def test_weights_are_of_the_type_asked_for(weight_type: str, stored: int) -> None:
    quantized = prepared_residual(DynamicQuantizer(weight_type=weight_type)).excluding()
    assert len(weights_in(quantized, stored)) == 4
    assert not weights_in(quantized, TensorProto.FLOAT)


@pytest.mark.parametrize(
    "option",
    [
        {"per_channel": True},
        {"weight_symmetric": True},
        {"reduce_range": True},
        {"op_types": ["Conv"]},
        {"exclude": ["left"]},
    ],
)
def test_options_have_an_effect(option: dict[str, Any]) -> None:
    plain = prepared_residual(DynamicQuantizer())
    other = prepared_residual(DynamicQuantizer(**option))
    assert not np.array_equal(
        run(plain.excluding(), plain.inputs)[0], run(other.excluding(), plain.inputs)[0]
    )


@pytest.mark.parametrize(
    ("op_types", "layers"),
    [
        (["Conv"], ["stem", "left", "right"]),
        (["MatMul"], ["head"]),
        # A Gemm runs as MatMul here: who asks for it gets it.
        (["Gemm"], ["head"]),
        (["Gemm", "MatMul", "Conv"], ["stem", "left", "right", "head"]),
    ],
)
def test_only_the_operations_asked_for_are_quantized(
    op_types: list[str], layers: list[str]
) -> None:
    prepared = prepared_residual(DynamicQuantizer(op_types=op_types))
    assert prepared.names == layers
    assert len(weights_in(prepared.excluding(), TensorProto.UINT8)) == len(layers)


def test_excluded_for_ever_stays_float_in_every_candidate() -> None:
    prepared = prepared_residual(DynamicQuantizer(exclude=["left"]))
    assert prepared.names == ["stem", "right", "head"]
    assert weights_in(prepared.excluding(), TensorProto.FLOAT) == {"left_w"}


def test_extra_options_reach_onnxruntime() -> None:
    symmetric = DynamicQuantizer(weight_symmetric=True)
    by_option = DynamicQuantizer(extra_options={"WeightSymmetric": True})
    assert (
        prepared_residual(symmetric).excluding().to_bytes()
        == prepared_residual(by_option).excluding().to_bytes()
    )


def test_what_onnxruntime_cannot_do_is_one_error() -> None:
    prepared = prepared_residual(DynamicQuantizer(extra_options={"MinimumRealRange": "none"}))
    with pytest.raises(QuantizationError, match="'residual' dynamically: .*quantization.op_types"):
        prepared.excluding()


@pytest.mark.parametrize(
    "wrong", [{"calibration": "minmax"}, {"weight_type": "int16"}, {"activation_type": "int8"}]
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        DynamicQuantizer(**wrong)


@pytest.mark.parametrize("precision", ["float16", "int4"])
def test_stored_layers_run_in_float(precision: str) -> None:
    prepared = prepared_residual(DynamicQuantizer())
    assert not {"ConvInteger", "MatMulInteger"} & set(op_types(prepared.mixed(precision)))
    some = op_types(prepared.mixed("int8", precision, "int8", "int8"))
    assert some.count("ConvInteger") == 2
    assert some.count("Conv") == 1
