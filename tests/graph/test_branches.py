"""An If whose condition is constant gives way to its branch."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import run
from stateful_models import chosen_by_rate, shaped

from seqto.graph.branches import inline_branches
from seqto.graph.constants import with_constants
from seqto.types import Model


def branch(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    """Return a branch that returns this tensor, with a constant of its own."""
    value = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    own = numpy_helper.from_array(np.array(len(name), np.float32), "own")
    return helper.make_graph(nodes, name, [], [value], [own])


def choose(
    condition: str, output: str, then: onnx.GraphProto, other: onnx.GraphProto
) -> onnx.NodeProto:
    """Return an If."""
    return helper.make_node(
        "If", [condition], [output], output, then_branch=then, else_branch=other
    )


def added(read: str, name: str) -> onnx.GraphProto:
    """Return a branch that adds its constant; its tensors have the same names in every branch."""
    return branch(name, [helper.make_node("Add", [read, "own"], ["sum"], "add")], "sum")


def twice() -> Model:
    """Return a model of two Ifs with tensors of the same names, one inside the other's branch."""
    inner = branch(
        "outer",
        [
            helper.make_node("Mul", ["x", "own"], ["product"], "mul"),
            choose("low", "inner_y", added("product", "abc"), added("product", "abcdef")),
        ],
        "inner_y",
    )
    same = branch("same", [helper.make_node("Identity", ["x"], ["sum"], "same")], "sum")
    nodes = [
        helper.make_node("Less", ["sr", "rate"], ["low"], "less"),
        helper.make_node("Not", ["low"], ["high"], "not"),
        choose("low", "first", inner, same),
        choose("high", "second", added("first", "a"), added("first", "ab")),
        helper.make_node("Identity", ["second"], ["y"], "last"),
    ]
    model = shaped({"x": [None, 4], "sr": []}, {"y": [None, 4]}, {"sr": TensorProto.INT64}, nodes)
    model.proto.graph.initializer.append(numpy_helper.from_array(np.array(16000), "rate"))
    return model


@pytest.mark.parametrize("make", [chosen_by_rate, twice])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_the_branch_computes_the_same(make: type[Model], rate: int) -> None:
    model = make()
    fixed = with_constants(model, {"sr": rate})
    onnx.checker.check_model(fixed.proto, full_check=True)
    assert "If" not in [node.op_type for node in fixed.proto.graph.node]
    x = np.random.RandomState(0).randn(5, 4).astype(np.float32)
    wanted = run(model, {"x": x, "sr": np.array(rate)})[0]
    np.testing.assert_array_equal(run(fixed, {"x": x})[0], wanted)


@pytest.mark.parametrize("make", [chosen_by_rate, twice])
def test_an_if_on_an_input_stays(make: type[Model]) -> None:
    proto = make().copy_proto()
    inline_branches(proto)
    assert proto == make().proto


def test_nodes_keep_their_names() -> None:
    fixed = with_constants(chosen_by_rate(), {"sr": 8000})
    assert "low_dense" in [node.name for node in fixed.proto.graph.node]
