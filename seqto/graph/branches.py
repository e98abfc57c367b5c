"""Replaces an If whose condition is constant by the branch that it takes.

ONNX Runtime does so too when it folds constants, but gives all nodes of the branch other names.
"""

import contextlib
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from seqto.graph.links import Links
from seqto.graph.nodes import (
    all_nodes,
    initializers,
    reads,
    replace_nodes,
    subgraphs,
    tensor_names,
    unused_name,
)

_LONGEST = 50
"""The most nodes that a condition is computed from: what chooses a branch is small."""


def inline_branches(proto: onnx.ModelProto) -> None:
    """Put the branches that are always taken into the graph, those inside them included."""
    while (found := _decided(proto)) is not None:
        node, branch = found
        _inline(proto.graph, node, branch)


def _decided(proto: onnx.ModelProto) -> tuple[onnx.NodeProto, onnx.GraphProto] | None:
    """Return the first If that is always decided alike, with the branch that it takes."""
    links = Links(proto.graph)
    for node in proto.graph.node:
        if node.op_type == "If" and not node.domain:
            value = _constant(proto, links, node.input[0])
            if value is not None and value.size == 1:
                wanted = "then_branch" if value.item() else "else_branch"
                return node, next(each.g for each in node.attribute if each.name == wanted)
    return None


def _constant(proto: onnx.ModelProto, links: Links, tensor: str) -> np.ndarray | None:
    """Return the value of a tensor that depends on no input, or None."""
    from onnx.reference import ReferenceEvaluator

    nodes = _makers(links, tensor)
    if nodes is None:
        return None
    inside = {name for node in nodes for name in reads(node)} | {tensor}
    kept = [each for name, each in initializers(proto.graph).items() if name in inside]
    output = onnx.ValueInfoProto(name=tensor)
    graph = helper.make_graph(nodes, "condition", [], [output], kept)
    # Whatever onnx cannot compute is left to ONNX Runtime.
    with contextlib.suppress(Exception):
        alone = helper.make_model(graph, opset_imports=list(proto.opset_import))
        (value,) = ReferenceEvaluator(alone).run(None, {})
        return np.asarray(value)
    return None


def _makers(links: Links, tensor: str) -> list[onnx.NodeProto] | None:
    """Return the nodes that a tensor is computed from, in order; None if it depends on inputs."""
    needed, waiting = set[int](), [tensor]
    while waiting:
        name = waiting.pop()
        maker = links.maker(name)
        if maker is None and name not in links.constants:
            return None
        if maker is not None and id(maker) not in needed:
            needed.add(id(maker))
            if len(needed) > _LONGEST or "Random" in maker.op_type:
                return None
            waiting.extend(reads(maker))
    return [node for node in links.nodes if id(node) in needed]


def _inline(graph: onnx.GraphProto, node: onnx.NodeProto, branch: onnx.GraphProto) -> None:
    """Put a branch where its If is."""
    own = onnx.GraphProto()
    own.CopyFrom(branch)
    _rename(own, _new_names(graph, node, own))
    _rename_nodes(own, {each.name for each in graph.node})
    results = [
        helper.make_node("Identity", [value.name], [name], name=f"{node.name}/{name}")
        for value, name in zip(own.output, node.output, strict=True)
        if name
    ]
    graph.initializer.extend(own.initializer)
    at = [each.output for each in graph.node].index(node.output)
    replace_nodes(graph, [*graph.node[:at], *own.node, *results, *graph.node[at + 1 :]])


def _new_names(
    graph: onnx.GraphProto, node: onnx.NodeProto, branch: onnx.GraphProto
) -> Mapping[str, str]:
    """Return other names for the branch's tensors that are called like one of the graph."""
    inside = [each.name for each in branch.initializer]
    inside += [name for each in branch.node for name in each.output if name]
    others = [each for each in graph.node if each.output != node.output]
    taken = {name for each in others for name in (*each.input, *each.output)}
    taken |= {each.name for each in (*graph.input, *graph.initializer)} | set(node.output)
    every = taken | tensor_names(branch)
    names = {}
    for name in inside:
        if name in taken:
            names[name] = unused_name(name, every)
            every.add(names[name])
    return names


def _rename_nodes(branch: onnx.GraphProto, taken: set[str]) -> None:
    """Give other names to nodes that are called like one of the graph."""
    for node in branch.node:
        if node.name:
            node.name = unused_name(node.name, taken)
            taken.add(node.name)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors of a graph, and where the graphs inside it read them."""
    if not names:
        return
    for tensor in (*graph.initializer, *graph.output):
        tensor.name = names.get(tensor.name, tensor.name)
    for node in all_nodes(graph):
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for inner in subgraphs(node):
            for value in inner.output:
                value.name = names.get(value.name, value.name)
