"""How much of a file the layers hold."""

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import build, weight
from sequence_models import reader, recurrent, tied

from seqto.graph.coverage import Coverage, coverage
from seqto.graph.prepare import prepare
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Model


def covered(model: Model, **options: list[str]) -> Coverage:
    """Return the coverage of the layers of these operations."""
    floating, layers = WeightOnlyQuantizer(**options).prepare(prepare(model))
    return coverage(floating, layers)


def test_nearly_all_of_a_large_model_is_in_layers() -> None:
    found = covered(reader(words=4000, width=100))
    assert found.layers == 4 * (4000 * 100 + 12 * 100 + 100 * 100 + 10 * 100)
    assert found.share == pytest.approx(found.layers / found.whole)
    assert found.share > 0.99
    assert str(found) == "layers hold 100 % of the file"


def test_a_weight_that_layers_share_counts_once() -> None:
    found = covered(tied(words=1000, width=100))
    assert found.layers == 4 * (1000 * 100 + 100 * 100)
    assert found.whole > found.layers


def test_both_weights_of_a_recurrent_layer_count() -> None:
    found = covered(recurrent("LSTM", 50, 100, directions=1), op_types=["LSTM"])
    assert found.layers == 4 * 400 * (50 + 100)


def test_what_holds_the_rest_is_named_with_its_size_and_reader() -> None:
    found = covered(reader(words=4000, width=100), op_types=["MatMul", "Gemm"])
    assert str(found).startswith(
        "layers hold 3 % of the file; most of the rest is in table (1.60 MB, Gather), "
        "place_table (4.8 KB, Gather), "
    )
    sizes = [each.size for each in found.others]
    assert sizes == sorted(sizes, reverse=True)
    assert found.layers + sum(sizes) == found.whole


def test_weights_inside_branches_are_named_with_what_they_are_inside() -> None:
    def branch(name: str) -> onnx.GraphProto:
        node = helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"], name)
        value = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [value], [weight(f"{name}_w", 60, 60)])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("ReduceMax", ["a"], ["most"], "most", keepdims=0),
        helper.make_node("Cast", ["most"], ["which"], "cast", to=TensorProto.BOOL),
        helper.make_node(
            *("If", ["which"], ["y"], "choice"),
            then_branch=branch("one"),
            else_branch=branch("other"),
        ),
    ]
    model = build(nodes, [weight("w", 60, 6)], {"x": ["N", 60]}, {"y": ["N", 60]})
    named = {each.name: each for each in covered(model).others}
    assert named["one_w"].size == 4 * 60 * 60
    assert named["one_w"].op_types == ("MatMul", "inside If choice")
    assert "one_w (14.4 KB, MatMul and inside If choice)" in str(covered(model))
