"""Integers of int8 layers that are coded: smaller files that run as they did."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, residual, run, weight
from quantizable_models import random_samples
from suite_quantizers import Prepared, QuantizerSuite

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.decoders import DOMAIN
from seqto.graph.nodes import initializers
from seqto.graph.prepare import prepare
from seqto.graph.unpacking import has_coded_weights, unpacked
from seqto.quantizers.static import StaticQuantizer
from seqto.types import FLOAT32, INT8, INT16, Candidate, Model

PLAIN, CODED = StaticQuantizer(), StaticQuantizer(coded_int8=True)


class TestCodedInt8(QuantizerSuite):
    """The conformance suite."""

    @pytest.fixture
    def quantizer(self) -> StaticQuantizer:
        return StaticQuantizer(coded_int8=True)


def large() -> Model:
    """Return a convolution and two dense layers that are worth coding, and a small one."""
    nodes = [
        helper.make_node("Conv", ["x", "conv_w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "first_w"], ["g"], "first", transB=1),
        helper.make_node("Relu", ["g"], ["h"], "relu_2"),
        helper.make_node("MatMul", ["h", "second_w"], ["m"], "second"),
        helper.make_node("Relu", ["m"], ["n"], "relu_3"),
        helper.make_node("MatMul", ["n", "small_w"], ["y"], "small"),
    ]
    weights = [
        weight("conv_w", 64, 64, 3, 3),
        weight("first_w", 256, 64 * 4 * 4),
        weight("second_w", 256, 256),
        weight("small_w", 256, 4),
    ]
    return build(nodes, weights, {"x": ["N", 64, 4, 4]}, {"y": ["N", 4]})


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    floating = prepare(large())
    return Prepared(PLAIN, floating, random_samples(floating))


def made(quantizer: StaticQuantizer, prepared: Prepared, **precisions: str) -> Model:
    every = {layer.name: precisions.get(layer.name, INT8) for layer in prepared.layers}
    return quantizer.quantize(prepared.model, prepared.ranges, Candidate.of(every))


def dequantized(model: Model) -> list[np.ndarray]:
    """Return the constants that are dequantized, in the order of the graph."""
    constants, graph = initializers(model.proto.graph), model.proto.graph
    read = (node.input[0] for node in graph.node if node.op_type == "DequantizeLinear")
    return [numpy_helper.to_array(constants[name]) for name in read if name in constants]


MIXED: list[dict[str, str]] = [
    {},
    {"conv": FLOAT32},
    {"conv": "coded_0.25", "small": FLOAT32},
    {"second": INT16},
]


@pytest.mark.parametrize("precisions", MIXED)
def test_outputs_are_the_same_bits_in_a_smaller_file(
    prepared: Prepared, precisions: dict[str, str]
) -> None:
    plain, coded = (made(each, prepared, **precisions) for each in (PLAIN, CODED))
    assert has_coded_weights(coded.proto)
    inputs = prepared.inputs
    for mine, wanted in zip(run(coded, inputs), run(plain, inputs), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    assert coded.size < 0.96 * plain.size


def test_the_runtime_computes_with_the_same_integers(prepared: Prepared) -> None:
    device = OnnxRuntimeDevice()
    plain, coded = (device.kernels(made(each, prepared)) for each in (PLAIN, CODED))
    layers = prepared.names
    assert {name: plain[name].is_integer for name in layers} == dict.fromkeys(layers, True)
    assert {name: coded[name] for name in layers} == {name: plain[name] for name in layers}


def test_small_weights_stay_as_they_are(prepared: Prepared) -> None:
    coded = made(CODED, prepared)
    kept = [each.shape for each in dequantized(coded) if each.ndim > 1]
    assert kept == [(256, 4)]
    # Where only small ones run in integers, the functions would take more than is saved.
    alone = made(CODED, prepared, conv=FLOAT32, first=FLOAT32, second=FLOAT32)
    assert not has_coded_weights(alone.proto)


def test_what_is_learned_is_the_same(prepared: Prepared) -> None:
    given = replace(prepared.model, learned={})
    mine, wanted = (each.learn(given, prepared.ranges, prepared.samples) for each in (CODED, PLAIN))
    assert mine.keys() == wanted.keys()
    for name, each in wanted.items():
        np.testing.assert_array_equal(mine[name], each)


def test_unpacking_gives_the_plain_integers_back(prepared: Prepared) -> None:
    plain, back = made(PLAIN, prepared), unpacked(made(CODED, prepared))
    assert not any(each.domain == DOMAIN for each in back.proto.functions)
    for mine, wanted in zip(dequantized(back), dequantized(plain), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    inputs = prepared.inputs
    for mine, wanted in zip(run(back, inputs), run(plain, inputs), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"weight_type": "uint8"},
        {"per_channel": False},
        {"reduce_range": True},
        {"activation_type": "int8", "quantize_bias": True},
    ],
    ids=str,
)
def test_other_ways_to_quantize_give_the_same_bits(
    prepared: Prepared, options: dict[str, Any]
) -> None:
    plain = made(StaticQuantizer(**options), prepared)
    coded = made(StaticQuantizer(**options, coded_int8=True), prepared)
    assert has_coded_weights(coded.proto) and coded.size < plain.size
    for mine, wanted in zip(run(coded, prepared.inputs), run(plain, prepared.inputs), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_a_weight_that_two_layers_share_is_unpacked_once() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "two"),
    ]
    floating = prepare(build(nodes, [weight("w", 400, 400)], {"x": ["N", 400]}, {"y": ["N", 400]}))
    shared = Prepared(PLAIN, floating, random_samples(floating))
    plain, coded = (made(each, shared) for each in (PLAIN, CODED))
    assert has_coded_weights(coded.proto)
    assert unpacked(coded).size < 1.1 * plain.size
    for mine, wanted in zip(
        run(unpacked(coded), shared.inputs), run(plain, shared.inputs), strict=True
    ):
        np.testing.assert_array_equal(mine, wanted)


def test_models_that_are_too_small_for_it_are_not_changed() -> None:
    floating = prepare(residual())
    small = Prepared(PLAIN, floating, random_samples(floating))
    assert made(CODED, small).digest == made(PLAIN, small).digest


def test_sizes_are_estimated(prepared: Prepared) -> None:
    for layer in prepared.layers:
        coded, plain = (each.stored_bytes(layer, INT8) for each in (CODED, PLAIN))
        assert 0.9 * plain < coded < plain
