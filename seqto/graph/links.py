"""How the nodes of a graph are linked: who makes and who reads each tensor, and what is unused."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import onnx

from seqto.graph.nodes import reads, replace_nodes


class Links:
    """The makers and the readers of a graph's tensors, found in one pass over its nodes.

    Valid until the graph is changed. An If, Loop or Scan reads what the graphs inside it read.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes: Sequence[onnx.NodeProto] = list(graph.node)
        self.constants = {each.name for each in graph.initializer}
        self.outputs = {each.name for each in graph.output}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.nodes:
            self._makers.update((name, node) for name in node.output if name)
            for name in reads(node):
                self._readers[name].append(node)

    def maker(self, tensor: str) -> onnx.NodeProto | None:
        """Return the node that makes this tensor, or None if it is an input or a constant."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> Sequence[onnx.NodeProto]:
        """Return the nodes that read this tensor: a node that reads it twice is there twice."""
        return self._readers.get(tensor, ())

    def before(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes whose outputs this node reads."""
        return [self._makers[name] for name in reads(node) if name in self._makers]

    def after(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes that read this node's outputs."""
        return [reader for name in node.output for reader in self.readers(name)]

    def is_used(self, tensor: str) -> bool:
        """Return whether a node reads this tensor, or the graph returns it."""
        return tensor in self._readers or tensor in self.outputs


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put each node behind all that it reads, or that a graph inside it reads.

    ONNX Runtime's own sorting does not look into the graphs inside nodes.
    """
    links = Links(graph)
    placed: list[onnx.NodeProto] = []
    # Nodes are told apart by identity: messages cannot be hashed.
    done: set[int] = set()
    for node in links.nodes:
        pending = [node]
        while pending:
            missing = [each for each in links.before(pending[-1]) if id(each) not in done]
            if missing and id(pending[-1]) not in done:
                pending.extend(missing)
            elif id(last := pending.pop()) not in done:
                placed.append(last)
                done.add(id(last))
    if any(one is not other for one, other in zip(placed, links.nodes, strict=True)):
        replace_nodes(graph, placed)


def drop_unused(graph: onnx.GraphProto, among: Collection[str] | None = None) -> None:
    """Delete the initializers that nothing uses; if `among` is given, only those named there."""
    used = {each.name for each in graph.output}
    used.update(name for node in graph.node for name in reads(node))
    # From the end and in place: large weights are not copied.
    for index in reversed(range(len(graph.initializer))):
        name = graph.initializer[index].name
        if (among is None or name in among) and name not in used:
            del graph.initializer[index]
