"""Which nodes are layers, and how a Gemm becomes a MatMul."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, feeds, gemm_model, node_names, op_types, residual, run, weight

from seqto.graph.layers import gemm_to_matmul, weight_layers
from seqto.types import Layer, Model


def test_layers_are_in_graph_order_with_their_weights_bytes() -> None:
    assert weight_layers(residual(), {"Gemm", "Conv"}) == (
        Layer("stem", "Conv", 8 * 3 * 9 * 4),
        Layer("left", "Conv", 8 * 8 * 9 * 4),
        Layer("right", "Conv", 8 * 8 * 9 * 4),
        Layer("head", "Gemm", 10 * 8 * 4),
    )


def test_only_the_types_asked_for_are_layers() -> None:
    assert [layer.name for layer in weight_layers(residual(), ["Gemm"])] == ["head"]
    assert weight_layers(residual(), []) == ()


def test_matmul_is_a_layer_with_a_constant_on_either_side_only() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "right"),
        helper.make_node("MatMul", ["v", "a"], ["b"], "left"),
        helper.make_node("MatMul", ["b", "a"], ["y"], "neither"),
    ]
    weights = [weight("w", 4, 4), weight("v", 4, 4)]
    model = build(nodes, weights, {"x": [4, 4]}, {"y": [4, 4]})
    assert [layer.name for layer in weight_layers(model, {"MatMul"})] == ["right", "left"]


def test_weights_that_are_no_floats_make_no_layer() -> None:
    model = residual()
    (stem,) = (each for each in model.proto.graph.initializer if each.name == "stem_w")
    stem.CopyFrom(numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.int8), "stem_w"))
    assert "stem" not in [layer.name for layer in weight_layers(model, {"Conv"})]


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_gemm_becomes_matmul_of_the_same_results(transposed: int, bias: bool) -> None:
    model = gemm_model(bias=bias, transB=transposed)
    changed = gemm_to_matmul(model)
    assert op_types(changed) == ["Relu", "MatMul", *["Add"] * bias, "Relu"]
    assert node_names(changed) == ["first", "fc", *["fc_bias"] * bias, "last"]
    onnx.checker.check_model(changed.proto, full_check=True)
    inputs = feeds(model)
    np.testing.assert_allclose(run(changed, inputs)[0], run(model, inputs)[0], rtol=1e-6)
    assert [each.dims for each in changed.proto.graph.initializer if "w" in each.name] == [[6, 4]]


def test_output_keeps_its_name_and_the_product_its_type() -> None:
    model = residual()
    changed = gemm_to_matmul(model).proto.graph
    assert [each.name for each in changed.output] == ["y"]
    product = changed.node[-2].output[0]
    (known,) = (each for each in changed.value_info if each.name == product)
    assert known.type == changed.output[0].type


@pytest.mark.parametrize("attributes", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}])
def test_gemm_that_does_more_is_left_alone(attributes: dict[str, float]) -> None:
    model = gemm_model(**attributes)
    assert gemm_to_matmul(model).to_bytes() == model.to_bytes()


def test_gemm_of_a_computed_weight_is_left_alone() -> None:
    nodes = [helper.make_node("Gemm", ["x", "v"], ["y"], "fc")]
    model = build(nodes, [], {"x": ["N", 4], "v": [4, 3]}, {"y": ["N", 3]})
    assert op_types(gemm_to_matmul(model)) == ["Gemm"]


def test_shared_weight_is_transposed_once_and_kept_for_who_still_needs_it() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "one", transB=1),
        helper.make_node("Gemm", ["a", "w"], ["b"], "two", transB=1),
        helper.make_node("Gemm", ["b", "w"], ["y"], "scaled", alpha=0.5),
    ]
    model = build(nodes, [weight("w", 4, 4)], {"x": ["N", 4]}, {"y": ["N", 4]})
    changed = gemm_to_matmul(model)
    assert [each.name for each in changed.proto.graph.initializer] == ["w", "w_transposed"]
    inputs = feeds(model)
    np.testing.assert_allclose(run(changed, inputs)[0], run(model, inputs)[0], rtol=1e-6)


def test_taken_names_are_not_used_again() -> None:
    model = gemm_model(transB=1)
    first, _, last = model.proto.graph.node
    first.name = "fc_bias"
    first.output[0] = model.proto.graph.node[1].input[0] = "g_matmul"
    model.proto.graph.initializer.append(weight("w_transposed", 4))
    last.input.append("w_transposed")
    last.op_type = "Add"
    assert len(set(node_names(gemm_to_matmul(model)))) == 4
    inputs = feeds(model)
    np.testing.assert_allclose(
        run(gemm_to_matmul(model), inputs)[0], run(model, inputs)[0], rtol=1e-6
    )


def test_argument_is_untouched() -> None:
    model: Model = gemm_model(transB=1)
    given = model.to_bytes()
    gemm_to_matmul(model)
    assert model.to_bytes() == given
