"""Small functions on graphs and nodes that the other modules of this folder share."""

from collections.abc import Collection, Iterator, Sequence

import onnx
from onnx import AttributeProto, helper

_WITH_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.UNDEFINED)


def initializers(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the graph's constants by name."""
    return {each.name: each for each in graph.initializer}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs inside a node (If, Loop, Scan)."""
    for each in node.attribute:
        # Asking for the type is quicker than for the fields; graphs made by hand may have none.
        if each.type in _WITH_GRAPHS:
            if each.HasField("g"):
                yield each.g
            yield from each.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from all_nodes(subgraph)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that the node reads, or that a graph inside it may read."""
    # An optional input that is left out has an empty name.
    yield from filter(None, node.input)
    for subgraph in subgraphs(node):
        for inner in subgraph.node:
            yield from reads(inner)
        yield from (each.name for each in subgraph.output)


def tensor_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of all tensors of the graph and of the graphs inside it."""
    names = {name for node in all_nodes(graph) for name in (*node.input, *node.output)}
    # A tensor that is gone may still have a shape, which another one of its name must not get.
    values = (*graph.input, *graph.output, *graph.initializer, *graph.value_info)
    return names.union(each.name for each in values)


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make these the nodes of the graph."""
    # Copies, because some of them may be the nodes that are deleted here.
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return this name, with a number appended if it is taken."""
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    """Return the value of a number attribute."""
    for each in node.attribute:
        if each.name == name:
            return float(helper.get_attribute_value(each))
    return default
