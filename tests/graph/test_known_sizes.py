"""Branches that known sizes decide on are taken, and what is in them becomes layers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, feeds, node_names, op_types, run, weight

from seqto.graph.known_sizes import fold_known_sizes
from seqto.graph.prepare import prepare
from seqto.types import Model


def asking(question: str) -> Model:
    """Return a Gemm inside an If that asks for the rank or a dimension of its input [N, 6].

    The Gemm is called `/inner/fc`, and there is another If around it, which asks the same.
    """
    shape = helper.make_node("Shape", ["x"], ["shape"], "shape")
    asked = {
        "rank": helper.make_node("Size", ["shape"], ["size"], "size"),
        "known": helper.make_node("Gather", ["shape", "one"], ["size"], "gather"),
        "free": helper.make_node("Gather", ["shape", "zero"], ["size"], "gather"),
    }[question]
    right = {"rank": 2, "known": 6, "free": 1}[question]
    numbers = {"zero": 0, "one": 1, "right": right}
    inner = _branch([helper.make_node("Gemm", ["x", "w"], ["found"], "/inner/fc")], "found")
    other = _branch([helper.make_node("MatMul", ["x", "v"], ["other"], "/other/fc")], "other")
    middle = _branch([_if("same", "between", inner, other)], "between")
    nodes = [
        *(shape, asked),
        helper.make_node("Equal", ["size", "right"], ["same"], "equal"),
        _if("same", "y", middle, other),
    ]
    weights = [
        *(weight("w", 6, 4), weight("v", 6, 4)),
        *(numpy_helper.from_array(np.array(each), name) for name, each in numbers.items()),
    ]
    return build(nodes, weights, {"x": ["N", 6]}, {"y": ["N", 4]}, name=question)


def _branch(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", 4])
    return helper.make_graph(nodes, output, [], [value])


def _if(test: str, output: str, yes: onnx.GraphProto, no: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", [test], [output], output, then_branch=yes, else_branch=no)


@pytest.mark.parametrize("question", ["rank", "known"])
def test_a_branch_is_taken_where_the_size_is_known(question: str) -> None:
    model = asking(question)
    prepared = prepare(model)
    assert op_types(prepared) == ["Gemm"]
    assert node_names(prepared) == ["/inner/fc"]
    assert [each.name for each in prepared.proto.graph.initializer] == ["w"]
    inputs = feeds(model)
    np.testing.assert_allclose(run(prepared, inputs)[0], run(model, inputs)[0], rtol=1e-5)


def test_a_question_for_a_free_dimension_stays_open() -> None:
    model = asking("free")
    prepared = prepare(model)
    assert "If" in op_types(prepared)
    for count in (1, 3):
        inputs = feeds(model, count)
        np.testing.assert_allclose(run(prepared, inputs)[0], run(model, inputs)[0], rtol=1e-5)


def test_a_model_without_branches_stays_as_it_is() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Size", ["shape"], ["y"], "size"),
    ]
    model = build(nodes, [], {"x": ["N", 6]}, {"y": []})
    before = model.to_bytes()
    assert not fold_known_sizes(model.proto)
    assert model.to_bytes() == before
    assert fold_known_sizes(asking("rank").proto)
