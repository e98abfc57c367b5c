"""Who makes and who reads each tensor, and what nothing uses."""

from collections.abc import Iterable

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import build, residual, weight

from seqto.graph.links import Links, drop_unused, sort_nodes

SHAPE = ["N", 4]


def names(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Return the names of these nodes."""
    return [node.name for node in nodes]


def branch(given: str, depth: int = 0) -> onnx.GraphProto:
    """Return a graph that hands on a tensor from outside, inside so many further graphs."""
    nodes, output = [], given
    if depth:
        inner = branch(given, depth - 1)
        output = f"inner{depth}"
        branches = {"then_branch": inner, "else_branch": inner}
        nodes = [helper.make_node("If", ["c"], [output], f"if{depth}", **branches)]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, SHAPE)]
    return helper.make_graph(nodes, "branch", [], outputs)


def test_each_tensor_has_its_maker_and_its_readers() -> None:
    links = Links(residual().proto.graph)
    maker = links.maker("sr")
    assert maker is not None
    assert maker.name == "stem_relu"
    assert names(links.readers("sr")) == ["left", "add"]
    assert names(links.after(maker)) == ["left", "add"]
    assert names(links.before(maker)) == ["stem"]
    assert links.maker("x") is None
    assert names(links.readers("y")) == []


def test_a_node_that_reads_a_tensor_twice_counts_twice() -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"], "double")]
    links = Links(build(nodes, [], {"x": SHAPE}, {"y": SHAPE}).proto.graph)
    assert names(links.readers("x")) == ["double", "double"]


def test_what_is_left_out_links_no_nodes() -> None:
    # Both the first node's second output and the second node's minimum are left out.
    nodes = [
        helper.make_node("Dropout", ["x"], ["a", ""], "first"),
        helper.make_node("Clip", ["x", "", "high"], ["y"], "second"),
    ]
    links = Links(build(nodes, [weight("high", 1)], {"x": SHAPE}, {"y": SHAPE}).proto.graph)
    first, second = links.nodes
    assert links.after(first) == links.before(second) == []


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_node_reads_what_the_graphs_inside_it_read(depth: int) -> None:
    branches = {"then_branch": branch("r", depth), "else_branch": branch("w", depth)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("If", ["c"], ["y"], "if", **branches),
    ]
    graph = build(nodes, [weight("w", 4)], {"x": SHAPE, "c": []}, {"y": SHAPE}).proto.graph
    links = Links(graph)
    assert set(names(links.readers("r"))) == {"if"}
    assert set(names(links.after(links.nodes[0]))) == {"if"}
    drop_unused(graph)
    assert [each.name for each in graph.initializer] == ["w"]


@pytest.mark.parametrize(
    ("among", "left"),
    [
        (None, ["w", "out"]),
        (["first"], ["w", "second", "out"]),
        (["w", "out"], ["first", "w", "second", "out"]),
    ],
)
def test_only_unused_initializers_are_dropped(among: list[str] | None, left: list[str]) -> None:
    weights = [weight(name, 4) for name in ("first", "w", "second", "out")]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], "add")]
    graph = build(nodes, weights, {"x": SHAPE}, {"y": SHAPE, "out": [4]}).proto.graph
    drop_unused(graph, among)
    assert [each.name for each in graph.initializer] == left


def test_nodes_are_sorted_by_what_graphs_inside_them_read() -> None:
    nodes = [
        helper.make_node(
            "If", ["c"], ["y"], "if", then_branch=branch("b"), else_branch=branch("b")
        ),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["y"], ["z"], "last"),
    ]
    model = build(nodes, [], {"x": SHAPE, "c": []}, {"z": SHAPE})
    sort_nodes(model.proto.graph)
    assert names(model.proto.graph.node) == ["first", "second", "if", "last"]


def test_sorted_nodes_keep_their_order() -> None:
    model = residual()
    before = model.to_bytes()
    sort_nodes(model.proto.graph)
    assert model.to_bytes() == before
