"""Weights in fewer bits."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import gemm_model, op_types, residual, run
from pydantic import ValidationError
from quantizable_models import random_samples, weights_in
from suite_quantizers import Prepared, QuantizerSuite, prepared_residual

from seqto.errors import ConfigError
from seqto.graph.prepare import prepare
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import FLOAT16, INT4, INT8


class TestWeightOnlyQuantizer(QuantizerSuite):
    """The conformance suite."""

    @pytest.fixture
    def quantizer(self) -> WeightOnlyQuantizer:
        """Return the default."""
        return WeightOnlyQuantizer()


def test_nothing_is_calibrated() -> None:
    assert prepared_residual(WeightOnlyQuantizer()).ranges == {}


def test_no_activation_is_quantized() -> None:
    prepared = prepared_residual(WeightOnlyQuantizer())
    found = set(op_types(prepared.mixed(INT4, INT8, FLOAT16)))
    assert found <= {*op_types(residual()), "Cast", "Mul", "Reshape", "Slice"}


@pytest.mark.parametrize(
    ("precision", "stored"),
    [(INT4, TensorProto.INT4), (INT8, TensorProto.INT8), (FLOAT16, TensorProto.FLOAT16)],
)
def test_weights_are_of_the_precision_asked_for(precision: str, stored: int) -> None:
    quantized = prepared_residual(WeightOnlyQuantizer()).mixed(precision)
    held = [each for each in quantized.proto.graph.initializer if each.data_type == stored]
    assert len([each for each in held if "_scale" not in each.name and "_w" in each.name]) == 4
    assert not weights_in(quantized, TensorProto.FLOAT)


def test_only_the_operations_asked_for_are_stored() -> None:
    prepared = prepared_residual(WeightOnlyQuantizer(op_types=["Gemm"]))
    assert prepared.names == ["head"]
    assert weights_in(prepared.mixed(INT8), TensorProto.FLOAT) == {"stem_w", "left_w", "right_w"}


def test_excluded_for_ever_stays_float_in_every_candidate() -> None:
    prepared = prepared_residual(WeightOnlyQuantizer(exclude=["left"]))
    assert prepared.names == ["stem", "right", "head"]
    assert weights_in(prepared.mixed(INT8), TensorProto.FLOAT) == {"left_w"}


def test_a_gemm_that_scales_is_a_layer_too() -> None:
    floating = prepare(gemm_model(alpha=0.5))
    prepared = Prepared(WeightOnlyQuantizer(), floating, random_samples(floating))
    wanted = run(floating, prepared.inputs)[0]
    found = run(prepared.mixed(INT8), prepared.inputs)[0]
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize("op_types", [[], ["Relu"], ["Covn"]])
def test_operations_without_weights_are_refused(op_types: list[str]) -> None:
    with pytest.raises(ConfigError, match="quantization.op_types"):
        prepared_residual(WeightOnlyQuantizer(op_types=op_types))


@pytest.mark.parametrize("wrong", [{"per_channel": True}, {"calibration": "minmax"}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        WeightOnlyQuantizer(**wrong)
