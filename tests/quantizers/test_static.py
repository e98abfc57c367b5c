"""Static quantization."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, feeds, op_types, residual, run, weight
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from pydantic import ValidationError
from quantizable_models import mobile, random_samples, shared_weight, weights_in
from suite_quantizers import Prepared, QuantizerSuite, prepared_residual
from transformer_models import vit

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ConfigError, QuantizationError
from seqto.graph.links import Links
from seqto.graph.prepare import prepare
from seqto.quantizers.ort import nodes_to_exclude
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Arrays, Candidate, Model, Samples


class TestStaticQuantizer(QuantizerSuite):
    """The conformance suite."""

    @pytest.fixture
    def quantizer(self) -> StaticQuantizer:
        """Return the default."""
        return StaticQuantizer()


class TestHistograms(QuantizerSuite):
    """The conformance suite, with a calibrator that is chatty and keeps what it saw."""

    @pytest.fixture
    def quantizer(self) -> StaticQuantizer:
        """Return one that calibrates by percentile."""
        return StaticQuantizer(calibration="percentile", per_channel=False)


class Reader(CalibrationDataReader):
    """Samples, as ORT's quantize_static takes them."""

    def __init__(self, samples: Samples) -> None:
        self._batches = samples.batches(1)

    def get_next(self) -> Arrays | None:
        """Return the next sample."""
        return next(self._batches, None)


def by_onnxruntime(
    floating: Model, samples: Samples, folder: Path, exclude: list[str], **options: Any
) -> Model:
    """Return what ORT's own quantize_static makes of the model."""
    path = folder / "by_onnxruntime.onnx"
    quantize_static(
        floating.copy_proto(),
        path,
        Reader(samples),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=exclude,
        **options,
    )
    return Model("by_onnxruntime", onnx.load(path))


def initializer(model: Model, name: str) -> np.ndarray:
    """Return a constant of the model."""
    tensor = next(each for each in model.proto.graph.initializer if each.name == name)
    return numpy_helper.to_array(tensor)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_outputs_are_those_of_onnxruntimes_quantize_static(
    per_channel: bool, seed: int | None, tmp_path: Path
) -> None:
    floating = prepare(mobile())
    samples = random_samples(floating)
    quantizer = StaticQuantizer(
        per_channel=per_channel,
        quantize_bias=True,
        keep_float=False,
        # ORT's own calibrator: from another graph, ranges may differ in their last digit.
        extra_options={"CalibMovingAverage": False},
        feedback=False,
    )
    prepared = Prepared(quantizer, floating, samples)
    draw = random.Random(seed)
    excluded = [] if seed is None else draw.sample(prepared.names, len(prepared.names) // 3)
    candidate = Candidate.excluding(prepared.names, excluded)
    nodes = nodes_to_exclude(Links(prepared.model.proto.graph), candidate, [])
    theirs = by_onnxruntime(floating, samples, tmp_path, nodes, per_channel=per_channel)
    ours = prepared.excluding(*excluded)
    inputs = feeds(floating, count=8, seed=9)
    assert not np.array_equal(run(ours, inputs)[0], run(floating, inputs)[0])
    for optimized in (False, True):
        np.testing.assert_array_equal(
            run(ours, inputs, optimized=optimized)[0], run(theirs, inputs, optimized=optimized)[0]
        )


def test_options_are_those_of_onnxruntimes_quantize_static(tmp_path: Path) -> None:
    options = {"CalibMovingAverage": True, "QDQKeepRemovableActivations": True}
    quantizer = StaticQuantizer(
        reduce_range=True,
        per_channel=False,
        activation_symmetric=True,
        weight_symmetric=False,
        quantize_bias=False,
        op_types=["Conv"],
        extra_options=dict(options),
        feedback=False,
    )
    prepared = prepared_residual(quantizer)
    # ORT averages over what it collects at a time: all samples there, one here.
    prepared.samples = Samples(
        {name: array[:1] for name, array in prepared.samples.inputs.items()}, ("only",)
    )
    prepared.ranges = quantizer.calibrate(prepared.model, prepared.samples)
    theirs = by_onnxruntime(
        prepared.floating,
        prepared.samples,
        tmp_path,
        [],
        reduce_range=True,
        op_types_to_quantize=["Conv"],
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": False,
            "QuantizeBias": False,
            **options,
        },
    )
    np.testing.assert_array_equal(
        run(prepared.excluding(), prepared.inputs)[0], run(theirs, prepared.inputs)[0]
    )


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "entropy"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_calibration_ranges_lie_within_what_was_seen(calibration: str, symmetric: bool) -> None:
    quantizer = StaticQuantizer(calibration=calibration, activation_symmetric=symmetric)
    prepared = prepared_residual(quantizer)
    seen = prepared.inputs["x"]
    low, high = prepared.ranges["x"]
    most = float(np.abs(seen).max())
    assert -most <= low < -0.5 < 0.5 < high <= most
    if symmetric and calibration == "minmax":
        assert (low, high) == (-most, most)
    elif calibration == "minmax":
        assert (low, high) == (seen.min(), seen.max())
    # Every activation that will be quantized has a range.
    assert set(prepared.ranges) >= {"x", "s", "sr", "l", "lr", "r", "sum", "y"}
    # Nothing below zero leaves a Relu.
    assert prepared.ranges["sr"][0] == (-prepared.ranges["sr"][1] if low == -high else 0)


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "entropy"])
def test_ranges_hold_all_samples_not_only_the_last(calibration: str) -> None:
    model = StaticQuantizer().prepare(prepare(residual()))[0]
    pixels = np.random.RandomState(0).randn(6, 3, 8, 8).astype(np.float32)
    pixels[0] *= 10
    samples = Samples({"x": pixels}, tuple("abcdef"))
    low, high = StaticQuantizer(calibration=calibration).calibrate(model, samples)["x"]
    rest = np.abs(pixels[1:]).max()
    assert high - low > 2 * rest


def test_percentile_cuts_the_tails() -> None:
    wide, narrow = (
        prepared_residual(StaticQuantizer(calibration="percentile", percentile=each)).ranges["x"]
        for each in (99.999, 90)
    )
    assert wide[0] < narrow[0] < 0 < narrow[1] < wide[1]
    # Half of the tenth that is cut lies on each side of a normal distribution.
    assert narrow == pytest.approx((-1.645, 1.645), abs=0.1)


def test_percentile_of_quantize_static_has_the_last_word() -> None:
    by_option, by_key = (
        prepared_residual(StaticQuantizer(calibration="percentile", **each)).ranges
        for each in ({"extra_options": {"CalibPercentile": 90}}, {"percentile": 90})
    )
    assert by_option == by_key


def test_calibration_does_not_need_a_free_batch() -> None:
    floating = prepare(residual())
    floating.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    assert prepared.ranges == prepared_residual(StaticQuantizer()).ranges


TYPES = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
}


@pytest.mark.parametrize("activation_type", TYPES)
@pytest.mark.parametrize("weight_type", TYPES)
def test_types_are_those_of_the_tensors(activation_type: str, weight_type: str) -> None:
    quantizer = StaticQuantizer(activation_type=activation_type, weight_type=weight_type)
    prepared = prepared_residual(quantizer)
    quantized = prepared.excluding()
    assert len(weights_in(quantized, TYPES[weight_type])) == 4
    assert not weights_in(quantized, TensorProto.FLOAT)
    zero_points = {
        each.data_type
        for each in quantized.proto.graph.initializer
        if each.name in ("x_zero_point", "y_zero_point")
    }
    assert zero_points == {TYPES[activation_type]}
    # Standard ONNX, also with 16 bits, which need a later opset than the model's.
    assert {each.domain for each in quantized.proto.graph.node} == {""}
    wanted = run(prepared.model, prepared.inputs)[0]
    program = OnnxRuntimeDevice().load(quantized)
    error = np.abs(program.run(prepared.inputs)[0] - wanted).max() / np.abs(wanted).max()
    assert error < (0.001 if "16" in activation_type and "16" in weight_type else 0.05)


def test_per_channel_has_a_scale_for_each_channel() -> None:
    fine, coarse = (
        prepared_residual(StaticQuantizer(per_channel=each)).excluding() for each in (True, False)
    )
    assert initializer(fine, "stem_w_scale").shape == (8,)
    assert initializer(coarse, "stem_w_scale").shape == ()


def test_reduce_range_keeps_weights_to_7_bits() -> None:
    whole, reduced = (
        initializer(
            prepared_residual(StaticQuantizer(reduce_range=each)).excluding(), "left_w_quantized"
        )
        for each in (False, True)
    )
    assert np.abs(whole).max() > 100
    assert np.abs(reduced).max() <= 64


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "entropy"])
def test_symmetric_activations_have_their_zero_in_the_middle(calibration: str) -> None:
    options: dict[str, Any] = {"activation_type": "int8", "calibration": calibration}
    plain, symmetric = (
        prepared_residual(StaticQuantizer(**options, activation_symmetric=each)).excluding()
        for each in (False, True)
    )
    assert initializer(plain, "sr_zero_point") == -128
    assert initializer(symmetric, "sr_zero_point") == 0


def test_asymmetric_weights_have_a_zero_point() -> None:
    options: dict[str, Any] = {"per_channel": False, "weight_type": "int8"}
    plain, asymmetric = (
        prepared_residual(StaticQuantizer(**options, weight_symmetric=each)).excluding()
        for each in (None, False)
    )
    assert initializer(plain, "stem_w_zero_point") == 0
    assert initializer(asymmetric, "stem_w_zero_point") != 0


def test_biases_may_stay_float() -> None:
    whole, float_bias = (
        prepared_residual(StaticQuantizer(quantize_bias=each, feedback=False)).excluding()
        for each in (True, False)
    )
    assert initializer(whole, "stem_b_quantized").dtype == np.int32
    assert initializer(float_bias, "stem_b").dtype == np.float32
    assert len(float_bias.to_bytes()) < len(whole.to_bytes())


def test_only_the_operations_asked_for_are_quantized() -> None:
    prepared = prepared_residual(StaticQuantizer(op_types=["Gemm"]))
    assert prepared.names == ["head"]
    assert weights_in(prepared.excluding(), TensorProto.FLOAT) == {"stem_w", "left_w", "right_w"}


def test_operations_without_weights_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="no operation with weights: .*Conv.*Gemm"):
        prepared_residual(StaticQuantizer(op_types=["Relu", "Add"]))


def test_excluded_for_ever_stays_float_in_every_candidate() -> None:
    prepared = prepared_residual(StaticQuantizer(exclude=["left"]))
    assert prepared.names == ["stem", "right", "head"]
    assert weights_in(prepared.excluding(), TensorProto.FLOAT) == {"left_w"}
    by_candidate = prepared_residual(StaticQuantizer()).excluding("left")
    assert prepared.excluding().to_bytes() == by_candidate.to_bytes()


def test_extra_options_reach_onnxruntime() -> None:
    options = {"QDQKeepRemovableActivations": True}
    kept = prepared_residual(StaticQuantizer(extra_options=options)).excluding()
    # By default ORT drops each Relu, as unsigned activations cut off what is negative.
    assert "Relu" in op_types(kept)
    assert "Relu" not in op_types(prepared_residual(StaticQuantizer()).excluding())


def test_what_onnxruntime_cannot_do_is_one_error() -> None:
    prepared = prepared_residual(StaticQuantizer(extra_options={"TensorQuantOverrides": 3}))
    with pytest.raises(QuantizationError, match="'residual' statically: .*quantization.op_types"):
        prepared.excluding()


def test_ranges_that_miss_an_activation_are_an_error() -> None:
    prepared = prepared_residual(StaticQuantizer())
    prepared.ranges = {name: each for name, each in prepared.ranges.items() if name != "x"}
    with pytest.raises(QuantizationError, match="param x"):
        prepared.excluding()


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_chanel": True},
        {"calibration": "distribution"},
        {"activation_type": "int4"},
        {"percentile": 101},
        {"op_types": "Conv"},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        StaticQuantizer(**wrong)


# int16: 16-bit activations around a layer.


def quantized_types(model: Model) -> dict[str, int]:
    """Return the integer type of every activation that is quantized."""
    zero_points = {each.name: each.data_type for each in model.proto.graph.initializer}
    return {
        each.input[0].removesuffix("_QuantizeLinear_Input"): zero_points[each.input[2]]
        for each in model.proto.graph.node
        if each.op_type == "QuantizeLinear"
    }


def test_int16_layers_read_and_write_16_bits_and_no_others_do() -> None:
    prepared = prepared_residual(StaticQuantizer())
    quantized = prepared.mixed("int8", "int16", "int8", "int8")
    types = quantized_types(quantized)
    # The Relus are gone: their outputs are what is quantized.
    fine = {name for name, each in types.items() if each == TensorProto.UINT16}
    assert fine == {"sr", "lr"}
    assert {each for name, each in types.items() if name not in fine} == {TensorProto.UINT8}
    assert len(weights_in(quantized, TensorProto.INT8)) == 4
    assert [(each.domain, each.version) for each in quantized.proto.opset_import] == [("", 21)]


def test_operations_of_one_input_hand_16_bits_on() -> None:
    prepared = prepared_residual(StaticQuantizer())
    types = quantized_types(prepared.mixed("int8", "int8", "int8", "int16"))
    # Flatten, the pool and the Relu before it, up to the Add.
    assert {name for name, each in types.items() if each == TensorProto.UINT16} == {
        *("sumr", "p", "f", "y"),
    }


@pytest.mark.parametrize(
    ("activation_type", "wide"), [("uint8", TensorProto.UINT16), ("int8", TensorProto.INT16)]
)
def test_all_int16_is_nearer_to_float_than_int8(activation_type: str, wide: int) -> None:
    prepared = prepared_residual(StaticQuantizer(activation_type=activation_type))
    wanted = run(prepared.floating, prepared.inputs)[0]
    coarse, fine = (prepared.mixed(each) for each in ("int8", "int16"))
    errors = [np.abs(run(each, prepared.inputs)[0] - wanted).max() for each in (coarse, fine)]
    assert errors[1] < 0.7 * errors[0]
    assert set(quantized_types(fine).values()) == {wide}
    simulated = StaticQuantizer(activation_type="uint16", weight_type="int8")
    if activation_type == "uint8":
        same = prepared_residual(simulated).excluding()
        np.testing.assert_array_equal(run(fine, prepared.inputs)[0], run(same, prepared.inputs)[0])


def test_int16_is_no_choice_where_all_activations_have_16_bits() -> None:
    assert "int16" in StaticQuantizer().precisions
    assert "int16" not in StaticQuantizer(activation_type="uint16").precisions


def test_overrides_of_the_user_go_before_int16() -> None:
    overrides = {"lr": [{"quant_type": QuantType.QInt8}]}
    quantizer = StaticQuantizer(extra_options={"TensorQuantOverrides": overrides})
    types = quantized_types(prepared_residual(quantizer).mixed("int8", "int16", "int8", "int8"))
    assert types["sr"] == TensorProto.UINT16
    assert types["lr"] == TensorProto.INT8


# Layers whose weights are only stored in fewer bits.


@pytest.mark.parametrize("precision", ["float16", "int4"])
def test_stored_layers_are_float_to_what_is_around_them(precision: str) -> None:
    prepared = prepared_residual(StaticQuantizer())
    assert "QuantizeLinear" not in op_types(prepared.mixed(precision))
    chosen = dict.fromkeys(prepared.names, precision)
    candidate = Candidate.of(chosen)
    excluded = Candidate.excluding(prepared.names, prepared.names)
    links = Links(prepared.model.proto.graph)
    assert nodes_to_exclude(links, candidate, []) == nodes_to_exclude(links, excluded, [])
    some = prepared.mixed("int8", precision, "int8", "int8")
    assert quantized_types(some) == quantized_types(prepared.excluding("left"))


def test_a_shared_weight_is_stored_for_one_and_quantized_for_the_other() -> None:
    floating = prepare(shared_weight())
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    for precisions in (("int8", "float16"), ("float16", "int8")):
        held = [
            each.data_type
            for each in prepared.mixed(*precisions).proto.graph.initializer
            if len(each.dims) == 4
        ]
        assert sorted(held) == sorted([TensorProto.INT8, TensorProto.FLOAT16])


def test_calibration_serves_every_precision() -> None:
    prepared = prepared_residual(StaticQuantizer())
    types = {"int16": {"x", "sr", "lr", "r", "sumr", "p", "f", "y"}, "int8": set()}
    for precision, wanted in types.items():
        found = quantized_types(prepared.mixed(precision))
        assert {name for name, each in found.items() if each == TensorProto.UINT16} == wanted


def test_a_copied_bias_does_not_get_the_name_of_an_activation() -> None:
    # ORT would call its copy `b0`, as the first activation.
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["b0"], "first"),
        helper.make_node("Conv", ["b0", "w1", "b"], ["y"], "second"),
    ]
    shape = ["N", 4, 8, 8]
    weights = [weight("w0", 4, 4, 1, 1), weight("w1", 4, 4, 1, 1), weight("b", 4)]
    model = prepare(build(nodes, weights, {"x": shape}, {"y": shape}))
    prepared = Prepared(StaticQuantizer(), model, random_samples(model))
    quantized = prepared.excluding()
    onnx.checker.check_model(quantized.proto)
    wanted = run(model, prepared.inputs)[0]
    found = run(quantized, prepared.inputs)[0]
    np.testing.assert_allclose(found, wanted, atol=0.1 * np.abs(wanted).max())


def test_a_relu_is_kept_for_a_branch_that_reads_it() -> None:
    # ORT leaves it to QuantizeLinear to clip, but the branch reads what is before that.
    value = helper.make_tensor_value_info("kept", onnx.TensorProto.FLOAT, None)
    inner = helper.make_graph(
        [helper.make_node("Identity", ["r"], ["kept"], "keep")], "b", [], [value]
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("ReduceMax", ["r"], ["most"], "most", keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["some"], "some"),
        helper.make_node("If", ["some"], ["y"], "if", then_branch=inner, else_branch=inner),
    ]
    zero = onnx.numpy_helper.from_array(np.float32(0), "zero")
    shape = ["N", 4, 8, 8]
    given = build(nodes, [weight("w", 4, 4, 1, 1), zero], {"x": shape}, {"y": shape})
    model = prepare(given)
    prepared = Prepared(StaticQuantizer(), model, random_samples(model))
    quantized = prepared.excluding()
    onnx.checker.check_model(quantized.proto)
    found = run(quantized, prepared.inputs)[0]
    assert found.min() == 0
    np.testing.assert_allclose(found, run(model, prepared.inputs)[0], atol=0.05)


def test_gains_of_layer_normalization_are_no_reason_for_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = prepare(vit(blocks=1))
    samples = random_samples(model)
    Prepared(StaticQuantizer(), model, samples).excluding()
    assert caplog.records == []
