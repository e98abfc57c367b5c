"""What quantizers learn from samples."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, run, weight
from quantizable_models import attention, mobile, shared_weight
from suite_quantizers import Prepared

from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.auto import AutoQuantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import FLOAT32, INT4, INT8, Candidate, Model, Samples

QUANTIZERS: list[Callable[..., Quantizer]] = [
    WeightOnlyQuantizer,
    StaticQuantizer,
    DynamicQuantizer,
]


def pictures(count: int, seed: int, channels: int = 3) -> Samples:
    """Return pictures whose pixels and channels go together, and are mostly bright."""
    draw = np.random.RandomState(seed)
    mixing = np.random.RandomState(0).rand(channels, 2)
    coarse = draw.rand(count, 2, 4, 4).repeat(2, axis=2).repeat(2, axis=3)
    pixels = np.einsum("ck,nkhw->nchw", mixing, coarse) + 0.05 * draw.randn(count, channels, 8, 8)
    return Samples({"x": pixels.astype(np.float32)}, tuple(map(str, range(count))))


def plain_network() -> Model:
    """Return a classifier of plain, grouped and depthwise Convs with Relu, and a Gemm."""
    nodes, weights, before = [], [], "x"
    shapes = {"stem": (32, 3, 3, 3), "depth": (32, 1, 3, 3), "group": (64, 8, 3, 3)}
    shapes["point"] = (64, 64, 1, 1)
    for name, shape in shapes.items():
        group = {"depth": 32, "group": 4}.get(name, 1)
        edge = shape[-1] // 2
        weights += [weight(f"{name}_w", *shape), weight(f"{name}_b", shape[0])]
        inputs = [before, f"{name}_w", f"{name}_b"]
        options = {"group": group, "pads": [edge] * 4}
        nodes += [
            helper.make_node("Conv", inputs, [f"{name}_y"], name, **options),
            helper.make_node("Relu", [f"{name}_y"], [f"{name}_r"], f"{name}_relu"),
        ]
        before = f"{name}_r"
    nodes += [
        helper.make_node("GlobalAveragePool", [before], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    weights += [weight("head_w", 10, 64), weight("head_b", 10)]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 10]}, name="plain")


def error(prepared: Prepared, samples: Samples, precision: str) -> float:
    inputs = dict(samples.inputs)
    outputs = run(prepared.mixed(precision), inputs)[0]
    return float(np.square(outputs - run(prepared.floating, inputs)[0]).mean())


@pytest.mark.parametrize("kind", QUANTIZERS)
@pytest.mark.parametrize(("precision", "times"), [(INT4, 6), (INT8, 2)])
def test_outputs_move_less_on_samples_that_were_not_seen(
    kind: Callable[..., Quantizer], precision: str, times: float
) -> None:
    floating = prepare(plain_network())
    seen, unseen = pictures(40, seed=1), pictures(40, seed=2)
    learned, rounded = (
        error(Prepared(kind(feedback=each), floating, seen), unseen, precision)
        for each in (True, False)
    )
    assert learned < rounded / times


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_without_feedback_nothing_is_learned_or_used(kind: Callable[..., Quantizer]) -> None:
    floating = prepare(plain_network())
    samples = pictures(10, seed=1)
    before = Prepared(kind(feedback=False), floating, samples)
    assert before.model.learned == {}
    taught = Prepared(kind(), floating, samples)
    candidate = Candidate.of(dict.fromkeys(before.names, INT4))
    assert (
        before.quantizer.quantize(taught.model, taught.ranges, candidate).to_bytes()
        == before.mixed(INT4).to_bytes()
    )


def test_matmuls_of_attention_are_learned_with_the_biases_behind_them() -> None:
    floating = prepare(attention(width=64))
    draw = np.random.RandomState(0)
    tokens = (draw.randn(60, 12, 8) @ draw.randn(8, 64)).astype(np.float32)
    everything = {"x": tokens, "mask": np.ones((60, 12), np.float32)}
    ids = tuple(map(str, range(60)))
    samples = Samples(everything, ids)
    errors = [
        error(
            Prepared(WeightOnlyQuantizer(feedback=each), floating, samples.first(40)),
            samples.after(40),
            INT4,
        )
        for each in (True, False)
    ]
    assert errors[0] < errors[1] / 2


def test_large_matmuls_run_packed_with_the_learned_integers() -> None:
    floating = prepare(attention(width=64))
    draw = np.random.RandomState(0)
    inputs = {
        "x": (draw.randn(20, 12, 8) @ draw.randn(8, 64)).astype(np.float32),
        "mask": np.ones((20, 12), np.float32),
    }
    samples = Samples(inputs, tuple(map(str, range(20))))
    packed, unpacked = (
        Prepared(WeightOnlyQuantizer(kernels=each), floating, samples)
        for each in ("nbits", "unpacked")
    )
    assert "MatMulNBits" in {node.op_type for node in packed.mixed(INT4).proto.graph.node}
    outputs = [run(each.mixed(INT4), inputs)[0] for each in (packed, unpacked)]
    wanted = run(floating, inputs)[0]
    apart = np.square(outputs[0] - outputs[1]).mean()
    assert apart < 0.1 * np.square(outputs[1] - wanted).mean()


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_layers_that_share_a_weight_share_its_integers(kind: Callable[..., Quantizer]) -> None:
    floating = prepare(shared_weight())
    prepared = Prepared(kind(), floating, pictures(20, seed=1, channels=4))
    both = prepared.mixed(INT4)
    held = [each for each in both.proto.graph.initializer if "int4" in each.name and each.dims]
    assert len({each.name for each in held if not each.name.endswith("_scale")}) == 1
    # In whatever order candidates come, the same one gives the same bytes.
    one = prepared.mixed(INT4, FLOAT32).to_bytes()
    again = Prepared(kind(), floating, prepared.samples)
    assert again.mixed(INT4, FLOAT32).to_bytes() == one
    assert again.mixed(INT4).to_bytes() == both.to_bytes()


def test_a_table_that_is_also_a_weight_is_rounded() -> None:
    nodes = [
        helper.make_node("Gather", ["w", "tokens"], ["e"], "table"),
        helper.make_node("Relu", ["e"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w", "b"], ["y"], "head", transB=1),
    ]
    model = build(nodes, [weight("w", 40, 32), weight("b", 40)], {}, {"y": ["N", 40]})
    model.proto.graph.input.append(helper.make_tensor_value_info("tokens", 7, ["N"]))
    samples = Samples({"tokens": np.arange(40)}, tuple(map(str, range(40))))
    prepared = Prepared(WeightOnlyQuantizer(), prepare(model), samples)
    assert {name.split()[0] for name in prepared.model.learned} == {"mean"}


def test_inputs_that_are_not_finite_teach_nothing() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["l"], "log"),
        helper.make_node("Conv", ["l", "v", "b"], ["y"], "conv"),
    ]
    weights = [weight("v", 4, 3, 1, 1), weight("b", 4)]
    model = prepare(build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 4, 8, 8]}))
    zeros = Samples({"x": np.zeros((4, 3, 8, 8), np.float32)}, tuple("abcd"))
    quantizer = WeightOnlyQuantizer()
    assert quantizer.learn(quantizer.prepare(model)[0], {}, zeros) == {}


def test_moments_that_do_not_fit_into_memory_take_several_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floating, samples = prepare(plain_network()), pictures(10, seed=1)
    at_once = Prepared(WeightOnlyQuantizer(), floating, samples).model.learned
    monkeypatch.setattr("seqto.quantizers.learning._MOST_BYTES", 1)
    one_by_one = Prepared(WeightOnlyQuantizer(), floating, samples).model.learned
    assert {*at_once} == {*one_by_one}
    for name, array in at_once.items():
        np.testing.assert_array_equal(array, one_by_one[name])


def test_wide_layers_are_learned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    floating = prepare(plain_network())
    seen, unseen = pictures(40, seed=1), pictures(40, seed=2)
    rounded = error(Prepared(WeightOnlyQuantizer(feedback=False), floating, seen), unseen, INT4)
    monkeypatch.setattr("seqto.quantizers.statistics._COLUMNS", 20)
    parts = error(Prepared(WeightOnlyQuantizer(), floating, seen), unseen, INT4)
    assert parts < rounded / 3


def test_every_scheme_of_auto_has_shifts_of_its_own() -> None:
    floating, samples = prepare(mobile()), pictures(10, seed=1)
    auto = Prepared(AutoQuantizer(), floating, samples)
    full = dict.fromkeys(auto.names, INT8)
    for scheme, alone in auto.quantizer.schemes.items():
        prepared = Prepared(alone, floating, samples)
        mine = auto.quantizer.quantize(
            auto.model, auto.ranges, dataclasses.replace(Candidate.of(full), scheme=scheme)
        )
        assert mine.to_bytes() == prepared.mixed(INT8).to_bytes()


def test_padding_of_texts_does_not_count() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "fc")]
    nodes.append(helper.make_node("Add", ["p", "b"], ["y"], "add"))
    weights = [numpy_helper.from_array(np.float32(np.arange(8).reshape(4, 2)), "w")]
    model = prepare(
        build(nodes, [*weights, weight("b", 2)], {"x": ["N", 3, 4]}, {"y": ["N", 3, 2]})
    )
    tokens = np.random.RandomState(0).randn(6, 3, 4).astype(np.float32)
    mask = np.array([[1, 1, 0]] * 6)
    other = np.where(mask[..., None], tokens, np.float32(100))
    ids = tuple("abcdef")
    quantizer = WeightOnlyQuantizer()
    found = [
        quantizer.learn(quantizer.prepare(model)[0], {}, Samples({"x": each}, ids, mask=mask))
        for each in (tokens, other)
    ]
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])
