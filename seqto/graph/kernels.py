"""Which kernels run a model's nodes after a runtime optimized the graph."""

import re

import onnx

from seqto.graph.links import Links
from seqto.types import Kernel, Model

_TOKEN = re.compile(r"_token_\d+$")
"""What ONNX Runtime appends to a name that is taken."""

_RELAID = "_nchwc"
"""What it appends to the name of an operation's output to name the one with another layout."""


def kernels(model: Model, optimized: onnx.GraphProto) -> dict[str, Kernel]:
    """Return the kernel that runs each node of the model; fused nodes have the same one."""
    found = landed_nodes(model, optimized)
    return {name: Kernel(kernel.name, kernel.op_type) for name, kernel in found.items()}


def landed_nodes(model: Model, optimized: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node of the optimized graph that each node became, or became a part of."""
    given, made = Links(model.proto.graph), Links(optimized)
    by_name = {**_renamed(given, made), **{node.name: node for node in made.nodes}}
    relaid = _relaid(made)

    def landed(node: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return the node of the optimized graph that this one became, or became a part of."""
        if node.name in by_name:
            return by_name[node.name]
        # A fused node has the outputs of the last node that it replaces.
        pending, seen = [node], {node.name}
        while pending:
            each = pending.pop(0)
            for name in each.output:
                if (maker := relaid.get(name) or made.maker(name)) is not None:
                    return maker
                fresh = [after for after in given.readers(name) if after.name not in seen]
                seen.update(after.name for after in fresh)
                pending.extend(fresh)
        return None

    found = {node.name: landed(node) for node in given.nodes}
    return {name: kernel for name, kernel in found.items() if kernel is not None}


def _renamed(given: Links, made: Links) -> dict[str, onnx.NodeProto]:
    """Return the nodes that ONNX Runtime replaced by another of the same kind, by the old names."""
    kinds = {node.name: node.op_type for node in given.nodes}
    return {
        name: node
        for node in made.nodes
        # An inserted Transpose is no node of the model, even if one of that name is gone.
        if (name := _TOKEN.sub("", node.name)) != node.name and kinds.get(name, "?") in node.op_type
    }


def _relaid(made: Links) -> dict[str, onnx.NodeProto]:
    """Return the nodes whose outputs have another layout, by the names of the outputs before."""
    plain = {_TOKEN.sub("", node.name): node for node in made.nodes}
    return {
        name.removesuffix(_RELAID): node for name, node in plain.items() if name.endswith(_RELAID)
    }
