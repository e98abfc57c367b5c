"""Which kernels run a model's nodes after a runtime optimized the graph."""

import onnx

from seqto.graph.links import Links
from seqto.types import Kernel, Model


def kernels(model: Model, optimized: onnx.GraphProto) -> dict[str, Kernel]:
    """Return the kernel that runs each node of the model; fused nodes have the same one."""
    by_name: dict[str, onnx.NodeProto] = {node.name: node for node in optimized.node}
    given, made = Links(model.proto.graph), Links(optimized)

    def landed(node: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return the node of the optimized graph that this one became, or became a part of."""
        if node.name in by_name:
            return by_name[node.name]
        # A fused node has the outputs of the last node that it replaces.
        pending, seen = [node], {node.name}
        while pending:
            each = pending.pop(0)
            for name in each.output:
                if (maker := made.maker(name)) is not None:
                    return maker
                fresh = [after for after in given.readers(name) if after.name not in seen]
                seen.update(after.name for after in fresh)
                pending.extend(fresh)
        return None

    found = {node.name: landed(node) for node in given.nodes}
    return {
        name: Kernel(kernel.name, kernel.op_type)
        for name, kernel in found.items()
        if kernel is not None
    }
