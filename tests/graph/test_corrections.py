"""Biases that are corrected for what their layers' outputs lost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, feeds, run, weight

from seqto.graph.corrections import can_be_corrected, correct_biases
from seqto.graph.links import Links
from seqto.graph.nodes import initializers
from seqto.types import Model

SHIFT = np.arange(1, 7, dtype=np.float32)


def corrected(model: Model, *layers: str) -> Model:
    copy = Model(model.name, model.copy_proto())
    correct_biases(copy.proto.graph, dict.fromkeys(layers, SHIFT), dict.fromkeys(layers, "int4"))
    onnx.checker.check_model(copy.proto, full_check=True)
    return copy


def moved(model: Model, *layers: str) -> np.ndarray:
    inputs = feeds(model)
    return np.asarray(run(corrected(model, *layers), inputs)[0] - run(model, inputs)[0])


def convolution(inputs: int, bias: bool) -> Model:
    nodes = [helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["y"], "conv")]
    weights = [weight("w", 6, inputs, 1, 1), *([weight("b", 6)] if bias else [])]
    return build(nodes, weights, {"x": ["N", inputs, 2, 2]}, {"y": ["N", 6, 2, 2]})


def product(bias: Sequence[int], **options: Any) -> Model:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "fc", **options)]
    return build(nodes, [weight("w", 4, 6), weight("b", *bias)], {"x": [2, 4]}, {"y": [2, 6]})


def matmul(bias: Sequence[int], *, shown: bool = False) -> Model:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "fc"),
        helper.make_node("Add", ["b", "p"], ["y"], "add"),
    ]
    outputs = {"y": [2, 3, 6], **({"p": [2, 3, 6]} if shown else {})}
    return build(nodes, [weight("w", 4, 6), weight("b", *bias)], {"x": [2, 3, 4]}, outputs)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_is_shifted(bias: bool) -> None:
    difference = moved(convolution(512, bias), "conv")
    np.testing.assert_allclose(difference, np.tile(SHIFT[:, None, None], (2, 1, 2, 2)), atol=1e-4)


def test_a_small_layer_is_not_worth_a_bias() -> None:
    model = convolution(511, bias=False)
    assert corrected(model, "conv").to_bytes() == model.to_bytes()


@pytest.mark.parametrize("bias", [(6,), (1, 6), (2, 6), (1,)])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.5, "beta": 2.0}])
def test_a_gemm_is_shifted_as_often_as_it_counts_its_product(
    bias: tuple[int, ...], options: dict[str, float]
) -> None:
    wanted = np.tile(SHIFT * options.get("alpha", 1), (2, 1))
    np.testing.assert_allclose(moved(product(bias, **options), "fc"), wanted, atol=1e-5)


def test_a_gemm_that_leaves_its_bias_out_stays_as_it_is() -> None:
    model = product((6,), beta=0.0)
    assert corrected(model, "fc").to_bytes() == model.to_bytes()


@pytest.mark.parametrize("bias", [(6,), (1, 6), (3, 6)])
def test_a_matmul_is_shifted_by_the_add_behind_it(bias: tuple[int, ...]) -> None:
    wanted = np.tile(SHIFT, (2, 3, 1))
    np.testing.assert_allclose(moved(matmul(bias), "fc"), wanted, atol=1e-5)


@pytest.mark.parametrize("model", [matmul((3, 1)), matmul((6,), shown=True)])
def test_an_add_that_does_not_fit_is_not_changed(model: Model) -> None:
    assert corrected(model, "fc").to_bytes() == model.to_bytes()
    graph = model.proto.graph
    assert not can_be_corrected(graph.node[0], Links(graph), initializers(graph))


def test_layers_that_share_a_bias_are_corrected_one_by_one() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], "one"),
        helper.make_node("Conv", ["x", "v", "b"], ["c"], "two"),
        helper.make_node("Sub", ["a", "c"], ["y"], "sub"),
    ]
    weights = [weight("w", 6, 3, 1, 1), weight("v", 6, 3, 1, 1), weight("b", 6)]
    model = build(nodes, weights, {"x": ["N", 3, 2, 2]}, {"y": ["N", 6, 2, 2]})
    shift = np.tile(SHIFT[:, None, None], (2, 1, 2, 2))
    np.testing.assert_allclose(moved(model, "one"), shift, atol=1e-5)
    np.testing.assert_allclose(moved(model, "two"), -shift, atol=1e-5)
    np.testing.assert_allclose(moved(model, "one", "two"), 0, atol=1e-5)
    # The names do not depend on what else is corrected: quantizers keep tensors by name.
    alone, both = (
        initializers(corrected(model, *each).proto.graph) for each in (["two"], ["one", "two"])
    )
    assert {*both} - {*alone} == {"one_bias_int4"}


def test_the_float_bias_is_gone() -> None:
    held = initializers(corrected(convolution(3, bias=True), "conv").proto.graph)
    assert {*held} == {"w", "b_int4"}
    assert numpy_helper.to_array(held["b_int4"]).dtype == np.float32
