"""Between which layers and operations a model's activations pass, and how large they are."""

import math
from collections.abc import Collection, Mapping

import onnx

from seqto.graph.inferred_shapes import inferred_values
from seqto.graph.layers import FLOAT_TYPES
from seqto.graph.links import Links
from seqto.types import Arrays, Model, Passage


def passages_of(model: Model, inputs: Arrays) -> tuple[Passage, ...]:
    """Return the float activations that one node makes and others read, with these inputs."""
    graph = model.proto.graph
    links, sizes = Links(graph), _sizes(model.proto, inputs)
    found = []
    for node in links.nodes:
        for tensor in node.output:
            readers = tuple(dict.fromkeys(each.name for each in links.readers(tensor)))
            if readers and tensor in sizes:
                found.append(Passage(node.name, readers, sizes[tensor]))
    return tuple(found)


def flow_of(
    model: Model, passages: Collection[Passage]
) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """Return which nodes each node reads, and which read it, along these passages."""
    before: dict[str, list[str]] = {node.name: [] for node in model.proto.graph.node}
    after: dict[str, list[str]] = {node.name: [] for node in model.proto.graph.node}
    for passage in passages:
        after[passage.maker] += passage.readers
        for reader in passage.readers:
            before[reader].append(passage.maker)
    return tuple(
        {name: tuple(dict.fromkeys(others)) for name, others in each.items()}
        for each in (before, after)
    )  # type: ignore[return-value]


def _sizes(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, int]:
    """Return the number of elements of each float activation whose shape these inputs decide."""
    shapes = {name: array.shape for name, array in inputs.items()}
    return {
        value.name: math.prod(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred_values(proto, shapes)
        if value.type.tensor_type.elem_type in FLOAT_TYPES
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
