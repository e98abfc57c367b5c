"""Ways through a graph that the other modules of this room share."""

from collections.abc import Collection, Iterator, Sequence

import onnx
from onnx import helper


def initializers(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the graph's constants by name."""
    return {each.name: each for each in graph.initializer}


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the graph and of the graphs inside them (If, Loop, Scan)."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                yield from all_nodes(subgraph)


def used_tensors(graph: onnx.GraphProto) -> set[str]:
    """Return the names of all tensors that are read in the graph or leave it."""
    used = {name for node in all_nodes(graph) for name in node.input}
    for node in all_nodes(graph):
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                used.update(each.name for each in subgraph.output)
    return used | {each.name for each in graph.output}


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make these the nodes of the graph."""
    # Copies, as some of them may be the nodes that are deleted here.
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return this name, with a number behind it if it is taken."""
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
