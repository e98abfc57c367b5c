"""Rewrites for importers that know fewer operations: exact, in ONNX Runtime."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, op_types, residual
from quantizable_models import mobile, random_samples

from seqto.graph.lowering import lowered
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Candidate, Model


def run(model: Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs as the graph says, without fusions that round otherwise."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.to_bytes(), options)
    return list(session.run(None, inputs))


def quantized(model: Model, quantizer: Quantizer, precision: str) -> Model:
    ready, layers = quantizer.prepare(prepare(model))
    ranges = quantizer.calibrate(ready, random_samples(ready))
    chosen = Candidate.of({layer.name: precision for layer in layers})
    return quantizer.quantize(ready, ranges, chosen)


@pytest.mark.parametrize("model", [residual(), mobile()], ids=["residual", "mobile"])
@pytest.mark.parametrize(
    ("quantizer", "precision"),
    [
        (StaticQuantizer(), "float32"),
        (StaticQuantizer(), "int8"),
        (StaticQuantizer(quantize_bias=True), "int8"),
        (StaticQuantizer(), "int16"),
        (StaticQuantizer(), "float16"),
        (DynamicQuantizer(), "int8"),
        (DynamicQuantizer(per_channel=True), "int8"),
        (WeightOnlyQuantizer(), "int8"),
        (WeightOnlyQuantizer(), "int4"),
        (WeightOnlyQuantizer(), "coded_0.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_quantization_is_the_same_function(
    model: Model, quantizer: Quantizer, precision: str
) -> None:
    candidate = quantized(model, quantizer, precision)
    before = candidate.to_bytes()
    ready = lowered(candidate)
    onnx.checker.check_model(ready.proto)
    assert candidate.to_bytes() == before, "the candidate itself was changed"
    assert not {"ConvInteger", "DynamicQuantizeLinear"} & set(op_types(ready))
    for sample in random_samples(candidate, count=4).batches(1):
        for wanted, found in zip(
            run(candidate, dict(sample)), run(ready, dict(sample)), strict=True
        ):
            # Constants are folded by another kernel's order of sums, nothing else may differ.
            exact = precision in ("int8", "int16") and quantizer.name != "weight_only"
            np.testing.assert_allclose(found, wanted, rtol=0, atol=0 if exact else 1e-5)


def test_stored_weights_become_constants() -> None:
    ready = lowered(quantized(mobile(), WeightOnlyQuantizer(), "int4"))
    assert "Cast" not in op_types(ready) and "Mul" not in op_types(ready)
    types = {each.data_type for each in ready.proto.graph.initializer}
    assert types == {TensorProto.FLOAT}


def test_constants_that_nothing_reads_are_gone() -> None:
    ready = lowered(quantized(mobile(), StaticQuantizer(), "int8"))
    read = {name for node in ready.proto.graph.node for name in node.input}
    assert {each.name for each in ready.proto.graph.initializer} <= read


def integer_convolution(weight: np.ndarray, zero: np.ndarray | None = None) -> Model:
    """Return a ConvInteger of `x` behind its own dynamic quantization."""
    names = ["q", "w", "z", *(["wz"] if zero is not None else [])]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize"),
        helper.make_node("ConvInteger", names, ["y"], "conv"),
    ]
    weights = [numpy_helper.from_array(weight, "w")]
    if zero is not None:
        weights.append(numpy_helper.from_array(zero, "wz"))
    model = build(
        nodes, weights, {"x": ["N", weight.shape[1], 3, 3]}, {"y": ["N", weight.shape[0], 3, 3]}
    )
    model.proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    return model


@pytest.mark.parametrize("inputs", [4, 600, 5000])
def test_sums_beyond_what_a_float_holds_are_exact(inputs: int) -> None:
    # All weights and values at their largest: the sum of 5000 of them needs 29 bits.
    weight = np.full((2, inputs, 1, 1), 254, np.uint8)
    weight[:, ::2] = 255
    model = integer_convolution(weight, np.array(0, np.uint8))
    given = np.linspace(0.9, 1, inputs * 9, dtype=np.float32).reshape(1, inputs, 3, 3)
    (wanted,), (found,) = run(model, {"x": given}), run(lowered(model), {"x": given})
    assert wanted.dtype == np.int32
    assert (wanted.max() > 2**24) == (inputs > 257)
    np.testing.assert_array_equal(found, wanted)
    counted = Counter(op_types(lowered(model)))["Conv"]
    assert (counted > 1) == (inputs > 257), "small sums need but one convolution"


def test_a_zero_point_for_each_channel_is_subtracted_there() -> None:
    weight = np.random.RandomState(0).randint(0, 255, (3, 4, 1, 1)).astype(np.uint8)
    model = integer_convolution(weight, np.array(7, np.uint8))
    given = np.random.RandomState(1).randn(1, 4, 3, 3).astype(np.float32)
    np.testing.assert_array_equal(run(model, {"x": given}), run(lowered(model), {"x": given}))


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((1, 4, 3, 3), np.float32),
        np.full((1, 4, 3, 3), 2.5, np.float32),
        np.full((1, 4, 3, 3), -1.25, np.float32),
        np.linspace(-1, 3, 36, dtype=np.float32).reshape(1, 4, 3, 3),
    ],
    ids=["zeros", "positive", "negative", "both"],
)
def test_dynamic_quantization_is_the_runtimes_own(given: np.ndarray) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize")
    outputs = {"q": ["N", 4, 3, 3], "s": [], "z": []}
    model = build([node], [], {"x": ["N", 4, 3, 3]}, outputs)
    for at in (0, 2):
        model.proto.graph.output[at].type.tensor_type.elem_type = TensorProto.UINT8
    both = run(model, {"x": given}), run(lowered(model), {"x": given})
    for wanted, found in zip(*both, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_integers_that_floats_hold_are_not_cast_to_and_fro() -> None:
    ready = lowered(quantized(mobile(), DynamicQuantizer(), "int8"))
    made = {name: node for node in ready.proto.graph.node for name in node.output}
    casts = [node for node in ready.proto.graph.node if node.op_type == "Cast"]
    twice = [node.name for node in casts if node.input[0] in made and made[node.input[0]] in casts]
    assert "Conv" in op_types(ready) and not twice


def test_sums_beyond_what_a_float_holds_are_cast() -> None:
    model = integer_convolution(np.full((2, 600, 1, 1), 255, np.uint8), np.array(0, np.uint8))
    model.proto.graph.node.append(
        helper.make_node("Cast", ["y"], ["f"], "to_float", to=TensorProto.FLOAT)
    )
    model.proto.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("f", TensorProto.FLOAT, ["N", 2, 3, 3])
    )
    casts = [node for node in lowered(model).proto.graph.node if node.name == "to_float"]
    assert [node.op_type for node in casts] == ["Cast"]
