"""Quantizers that compute nothing twice give what ONNX Runtime's own give."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, residual, weight
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from quantizable_models import mobile, random_samples, shared_weight
from suite_quantizers import Prepared, prepared_residual

from seqto.errors import QuantizationError
from seqto.graph.links import Links
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers import dynamic, static
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.known import Memory
from seqto.quantizers.reuse import _QuickModel
from seqto.quantizers.static import StaticQuantizer
from seqto.types import FLOAT32, INT8, Candidate, Model


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes the bytes of a candidate with ORT's own classes."""

    def quantize(prepared: Prepared, candidate: Candidate) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(static, "ReusingQDQQuantizer", lambda _, *rest: QDQQuantizer(*rest))
            patch.setattr(dynamic, "ReusingONNXQuantizer", lambda _, *rest: ONNXQuantizer(*rest))
            quantizer = prepared.quantizer
            return quantizer.quantize(prepared.model, prepared.ranges, candidate).to_bytes()

    return quantize


def overflowing() -> Model:
    """Return two Convs whose weights are so small beside their biases that ORT widens scales."""
    nodes = [
        helper.make_node("Conv", ["x", "one_w", "one_b"], ["a"], "one"),
        helper.make_node("Clip", ["a", "low", "high"], ["b"], "clip"),
        helper.make_node("Conv", ["b", "two_w", "two_b"], ["y"], "two"),
    ]
    small = np.float32(1e-9)
    weights = [
        numpy_helper.from_array(numpy_helper.to_array(weight(name, 4, 4, 1, 1)) * small, name)
        for name in ("one_w", "two_w")
    ]
    biases = [weight("one_b", 4), weight("two_b", 4)]
    limits = [numpy_helper.from_array(np.float32(each), f"{name}") for name, each in LIMITS.items()]
    shape = ["N", 4, 8, 8]
    return build(
        nodes, [*weights, *biases, *limits], {"x": shape}, {"y": shape}, name="overflowing"
    )


LIMITS = {"low": 0.0, "high": 0.2}


def shared_bias() -> Model:
    """Return three Convs with one bias, which ORT copies and numbers."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["a"], "first"),
        helper.make_node("Conv", ["a", "w1", "b"], ["c"], "second"),
        helper.make_node("Conv", ["c", "w2", "b"], ["y"], "third"),
    ]
    shape = ["N", 4, 8, 8]
    weights = [weight(f"w{at}", 4, 4, 1, 1) for at in range(3)]
    return build(nodes, [*weights, weight("b", 4)], {"x": shape}, {"y": shape}, name="shared_bias")


def awkward(dtype: Any = np.float32) -> Model:
    """Return a MatMul, a Conv and a Gemm whose weights have channels of all kinds."""
    nodes = [
        helper.make_node("Conv", ["x", "conv_w", "conv_b"], ["c"], "conv"),
        helper.make_node("Flatten", ["c"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "gemm_w"], ["g"], "gemm", transB=1),
        helper.make_node("MatMul", ["g", "matmul_w"], ["y"], "matmul"),
    ]
    size = len(channel_scales(dtype))
    shapes = {"conv_w": (size, 5, 1, 1), "gemm_w": (size, size * 4), "matmul_w": (size, size)}
    weights = [
        awkward_weight(name, shape, -1 if name == "matmul_w" else 0, dtype)
        for name, shape in shapes.items()
    ]
    bias = numpy_helper.to_array(weight("conv_b", size)).astype(dtype)
    weights.append(numpy_helper.from_array(bias, "conv_b"))
    model = build(nodes, weights, {"x": ["N", 5, 2, 2]}, {"y": ["N", size]}, name="awkward")
    if dtype == np.float16:
        for value in (*model.proto.graph.input, *model.proto.graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


class Ranged(Prepared):
    """The awkward model with ranges, though few of its weights let it compute anything."""

    def __init__(self, quantizer: Quantizer, floating: Model) -> None:
        self.quantizer = quantizer
        self.model, self.layers = quantizer.prepare(floating)
        self.ranges = dict.fromkeys("xcfgy", (-1.0, 2.0))


def channel_scales(dtype: Any) -> np.ndarray:
    """Return the magnitudes of channels: usual ones, and all that lie at a border."""
    limits = np.finfo(dtype)
    tiny, most = float(limits.tiny), float(limits.max)
    # Where the scale of so many steps is the least that is no denormal number.
    borders = [
        tiny * steps * around for steps in (63.5, 127, 255 / 2) for around in (0.99, 1, 1.01)
    ]
    edges = [
        0,
        -0.0,
        float(limits.smallest_subnormal),
        tiny / 3,
        tiny,
        *borders,
        most / 3,
        most / 2,
    ]
    return np.array([*np.geomspace(1e-3, 1e2, 17), *edges])


def awkward_weight(name: str, shape: tuple[int, ...], axis: int, dtype: Any) -> onnx.TensorProto:
    """Return a weight whose channels are of these magnitudes, or lie on one side of zero."""
    draw = np.random.RandomState(sum(name.encode()))
    values = np.moveaxis(draw.uniform(-1, 1, shape), axis, 0)
    values.reshape(len(values), -1)[:, 0] = draw.choice([-1, 1], len(values))
    values[1], values[2] = np.abs(values[1]), -np.abs(values[2])
    scales = channel_scales(dtype).reshape(-1, *[1] * (len(shape) - 1))
    return numpy_helper.from_array(
        np.ascontiguousarray(np.moveaxis(values * scales, 0, axis).astype(dtype)), name
    )


MODELS = [mobile, residual, shared_weight, shared_bias, overflowing]
STATIC = [
    {"per_channel": True, "quantize_bias": True},
    {"per_channel": False, "quantize_bias": True},
    {"per_channel": True, "quantize_bias": False, "reduce_range": True},
    {"per_channel": False, "weight_type": "uint8", "activation_type": "int8"},
    {"extra_options": {"AddQDQPairToWeight": True}},
    {"extra_options": {"QDQKeepRemovableActivations": True, "DedicatedQDQPair": True}},
]
DYNAMIC = [
    {"per_channel": True},
    {"per_channel": False},
    {"per_channel": True, "weight_type": "int8", "reduce_range": True},
    {"extra_options": {"WeightSymmetric": True}},
]
QUANTIZERS = [
    *(StaticQuantizer(**each) for each in STATIC),
    *(DynamicQuantizer(**each) for each in DYNAMIC),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=lambda each: each.name)
def test_any_candidate_is_to_the_bit_what_onnxruntime_makes(
    quantizer: Quantizer, model: Any, plain: Any
) -> None:
    floating = prepare(model())
    prepared = Prepared(quantizer, floating, random_samples(floating))
    draw = random.Random(0)
    for _ in range(4):
        precisions = {name: draw.choice([INT8, INT8, FLOAT32]) for name in prepared.names}
        candidate = Candidate.of(precisions)
        found = quantizer.quantize(prepared.model, prepared.ranges, candidate).to_bytes()
        assert found == plain(prepared, candidate)


INTEGERS = ["int8", "uint8", "int16", "uint16"]
AWKWARD = [
    *(
        StaticQuantizer(weight_type=integer, reduce_range=reduced, **options)
        for integer in INTEGERS
        for reduced in (False, True)
        for options in ({}, {"quantize_bias": True})
    ),
    StaticQuantizer(weight_symmetric=False),
    StaticQuantizer(extra_options={"MinimumRealRange": 1e-4}),
    StaticQuantizer(
        extra_options={"TensorQuantOverrides": {"gemm_w": [{"axis": 0, "symmetric": False}]}}
    ),
    StaticQuantizer(op_types=["MatMul"], extra_options={"BlockSize": 8}),
    *(
        DynamicQuantizer(per_channel=True, weight_type=integer, reduce_range=reduced, **options)
        for integer in INTEGERS[:2]
        for reduced in (False, True)
        for options in ({}, {"weight_symmetric": True}, {"weight_symmetric": False})
    ),
    DynamicQuantizer(
        per_channel=True, weight_type="int8", extra_options={"MinimumRealRange": 1e-4}
    ),
]


@pytest.mark.parametrize("quantizer", AWKWARD, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_channels_of_all_kinds_are_to_the_bit_what_onnxruntime_makes(
    quantizer: Quantizer, dtype: Any, plain: Any
) -> None:
    prepared = Ranged(quantizer, awkward(dtype))
    assert prepared.excluding().to_bytes() == plain(
        prepared, Candidate.excluding(prepared.names, [])
    )


@pytest.mark.parametrize("value", [np.inf, np.nan, np.finfo(np.float32).max])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind", [StaticQuantizer, DynamicQuantizer])
def test_what_is_no_number_is_left_to_onnxruntime(
    kind: Any, per_channel: bool, value: float, plain: Any
) -> None:
    floating = awkward()
    for tensor in floating.proto.graph.initializer:
        if tensor.name.endswith("_w"):
            values = numpy_helper.to_array(tensor).copy()
            values.flat[7] = value
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    prepared = Ranged(kind(per_channel=per_channel, weight_type="int8"), floating)
    everything = Candidate.excluding(prepared.names, [])
    with np.errstate(all="ignore"):
        outcomes = [
            _outcome(lambda: prepared.excluding().to_bytes()),
            _outcome(lambda: plain(prepared, everything)),
        ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "quantizer",
    [
        StaticQuantizer(),
        # A Conv's weight has a single scale there.
        DynamicQuantizer(per_channel=True, weight_type="int8", exclude=["conv"]),
    ],
)
def test_channels_are_not_gone_through_one_by_one(
    quantizer: Quantizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or all the comparisons above would be of ONNX Runtime with itself.
    prepared = Ranged(quantizer, awkward())
    calls: list[int] = []
    for module in ("qdq_quantizer.compute_data_quant_params", "base_quantizer.quantize_data"):
        path = f"onnxruntime.quantization.{module}"
        monkeypatch.setattr(path, lambda *_, **__: calls.append(1))
    prepared.excluding()
    assert not calls


@pytest.mark.parametrize("quantizer", [StaticQuantizer(), DynamicQuantizer(per_channel=True)])
def test_weights_are_quantized_once(quantizer: Quantizer, monkeypatch: pytest.MonkeyPatch) -> None:
    floating = prepare(mobile())
    prepared = Prepared(quantizer, floating, random_samples(floating))
    prepared.excluding()
    seen = []
    for module in ("qdq_quantizer.quantize_onnx_initializer", "base_quantizer.quantize_data"):
        path = f"onnxruntime.quantization.{module}"
        function = _resolve(path)

        def count(values: Any, *rest: Any, _function: Any = function, **named: Any) -> Any:
            array = values if isinstance(values, np.ndarray) else numpy_helper.to_array(values)
            seen.append(array.size)
            return _function(values, *rest, **named)

        monkeypatch.setattr(path, count)
    prepared.excluding("stem")
    # At most the single values that stand in for weights.
    assert set(seen) <= {1}


def test_other_ranges_are_not_taken_for_the_first(plain: Any) -> None:
    floating = prepare(overflowing())
    quantizer = StaticQuantizer()
    prepared = Prepared(quantizer, floating, random_samples(floating))
    everything = Candidate.excluding(prepared.names, [])
    first = prepared.excluding().to_bytes()
    prepared.ranges = {name: (low * 3, high * 3) for name, (low, high) in prepared.ranges.items()}
    second = prepared.excluding().to_bytes()
    assert second != first
    assert second == plain(prepared, everything)


def test_overflowing_biases_widen_the_scales() -> None:
    # Or the model would not show what it is there to show.
    floating = prepare(overflowing())
    options = {"QDQDisableWeightAdjustForInt32Bias": True}
    scales = []
    for quantizer in (StaticQuantizer(), StaticQuantizer(extra_options=options)):
        quantized = Prepared(quantizer, floating, random_samples(floating)).excluding()
        tensors = {each.name: each for each in quantized.proto.graph.initializer}
        scales.append(numpy_helper.to_array(tensors["two_w_scale"]))
    assert (scales[0] > scales[1]).any()


def test_changed_settings_are_heeded() -> None:
    quantizer = StaticQuantizer(feedback=False)
    prepared = prepared_residual(quantizer)
    fine = prepared.excluding().to_bytes()
    quantizer.per_channel = False
    coarse = prepared.excluding().to_bytes()
    assert coarse != fine
    other = prepared_residual(StaticQuantizer(per_channel=False, feedback=False))
    assert coarse == other.excluding().to_bytes()


@pytest.mark.parametrize("kind", [StaticQuantizer, DynamicQuantizer])
def test_nodes_are_linked_once_for_all_candidates(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[onnx.GraphProto] = []
    monkeypatch.setattr(
        "seqto.quantizers.known.Links", lambda graph: built.append(graph) or Links(graph)
    )
    floating = prepare(residual())
    prepared = Prepared(kind(), floating, random_samples(floating))
    built.clear()
    for name in prepared.names:
        prepared.excluding(name)
    assert len(built) == 1


def test_readers_are_not_collected_for_each_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    collect = ONNXModel.input_name_to_nodes
    monkeypatch.setattr(
        ONNXModel, "input_name_to_nodes", lambda model: calls.append(1) or collect(model)
    )
    floating = prepare(mobile())
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    calls.clear()
    prepared.excluding()
    assert len(calls) == 1


def test_tensors_are_renamed_as_onnxruntime_renames_them() -> None:
    # A tensor that is renamed, read twice by a node, read by a node that was added, or no longer.
    def renamed(kind: type[ONNXModel]) -> bytes:
        model = kind(residual().copy_proto())
        first, second, *_ = model.nodes()
        (old,) = first.output
        readers = {each.name for each in model.nodes() if old in each.input}
        model.replace_output_of_all_nodes(old, "made")
        model.replace_input_of_all_nodes(old, "read")
        model.add_node(helper.make_node("Add", ["read", "read"], ["sum"], "added"))
        model.replace_input_of_nodes("read", "sum", {min(readers), second.name})
        model.replace_node_input(model.nodes()[-1], "read", "made")
        model.replace_input_of_all_nodes("made", "last")
        model.replace_input_of_all_nodes("read", "rest")
        model.replace_output_of_all_nodes("made", "last")
        model.replace_output_of_all_nodes("sum", "total")
        model.replace_input_of_all_nodes("nobody's", "x")
        return bytes(model.model.SerializeToString(deterministic=True))

    assert renamed(_QuickModel) == renamed(ONNXModel)


def test_memory_holds_one_model() -> None:
    memory, model = Memory(), residual()
    known = memory.of(model, "a")
    assert known.once("key", lambda: 1) == known.once("key", lambda: 2) == 1
    assert memory.of(model, "a") is known
    assert memory.of(model, "b") is not known
    assert memory.of(residual(), "b").values == {}
    assert memory.of(model, "a") is not known


def _outcome(quantize: Callable[[], bytes]) -> bytes | str:
    """Return the model's bytes, or why there are none."""
    try:
        return quantize()
    except QuantizationError as error:
        return str(error)


def _resolve(path: str) -> Any:
    import importlib

    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
