"""Graphs cut into parts that run one after another, and what a change to a graph touches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from seqto.graph.nodes import all_nodes, initializers
from seqto.types import Model


@dataclass(frozen=True)
class Cut:
    """A place before the node at `position`; the nodes from there on need these tensors."""

    position: int
    tensors: tuple[str, ...]
    sample_bytes: int
    """What the tensors take for one sample, as far as their shapes are known."""


@dataclass(frozen=True)
class Span:
    """The nodes from `first` up to, not including, `last`."""

    first: int
    last: int


def find_cuts(model: Model) -> tuple[Cut, ...]:
    """Return where to cut the graph above its first output: where little is kept, in order.

    The first cut is before all nodes, the last one behind them with nothing but that output.
    """
    types = _types(model.proto.graph)
    end = len(model.proto.graph.node)
    every = [
        Cut(position, tensors, sum(_sample_bytes(types[name]) for name in tensors if name in types))
        for position, tensors in enumerate(_live(model.proto.graph))
        # A part cannot be fed what has no known type.
        if position == end or set(tensors) <= set(types)
    ]
    inner = [
        here
        for before, here, after in zip(every, every[1:], every[2:], strict=False)
        if before.sample_bytes >= here.sample_bytes <= after.sample_bytes
    ]
    return (every[0], *inner, every[-1])


def part(model: Model, start: Cut, end: Cut) -> Model:
    """Return the nodes between two cuts as a model from the one's tensors to the other's.

    Tensors that are there at both cuts are no outputs of it.
    """
    nodes = model.proto.graph.node[start.position : end.position]
    return _model_of(model, model, nodes, start, end)


def changed_part(model: Model, changed: Model, start: Cut, end: Cut) -> Model:
    """Return what stands in the changed model for the nodes between two cuts of the original.

    The cuts must enclose `changed_span`.
    """
    nodes = model.proto.graph.node
    outside = {_text(node) for node in (*nodes[: start.position], *nodes[end.position :])}
    inside = [node for node in changed.proto.graph.node if _text(node) not in outside]
    return _model_of(changed, model, inside, start, end)


def changed_span(model: Model, changed: Model) -> Span:
    """Return the nodes outside which both models are the same; empty if they are altogether."""
    kept = {_text(node) for node in changed.proto.graph.node}
    others = _changed_constants(model.proto.graph, changed.proto.graph)
    positions = [
        position
        for position, node in enumerate(model.proto.graph.node)
        if _text(node) not in kept or others.intersection(_reads(node))
    ]
    return Span(positions[0], positions[-1] + 1) if positions else Span(0, 0)


def same_computation(one: Model, other: Model) -> bool:
    """Return whether both models have the same nodes in the same order, and the same constants."""
    first, second = one.proto.graph, other.proto.graph
    constants = initializers(second)
    return (
        len(first.node) == len(second.node)
        and all(_text(a) == _text(b) for a, b in zip(first.node, second.node, strict=True))
        and len(first.initializer) == len(constants)
        and all(
            each.name in constants and _same_values(each, constants[each.name])
            for each in first.initializer
        )
    )


def _live(graph: onnx.GraphProto) -> Iterator[tuple[str, ...]]:
    """Yield for each place between nodes what was made before it and is needed behind it."""
    constants = initializers(graph)
    last_use = {name: place for place, node in enumerate(graph.node) for name in _reads(node)}
    last_use[graph.output[0].name] = len(graph.node)
    alive = [each.name for each in graph.input if each.name not in constants]
    for place in range(len(graph.node) + 1):
        alive = [name for name in alive if last_use.get(name, -1) >= place]
        yield tuple(alive)
        if place < len(graph.node):
            alive.extend(graph.node[place].output)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that the node reads, or that a graph inside it may read."""
    yield from node.input
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            yield from (name for inner in all_nodes(subgraph) for name in inner.input)
            yield from (each.name for each in subgraph.output)


def _types(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the tensors whose type the graph tells."""
    values = (*graph.input, *graph.value_info, *graph.output)
    return {each.name: each for each in values if each.type.tensor_type.elem_type}


def _sample_bytes(value: onnx.ValueInfoProto) -> int:
    tensor = value.type.tensor_type
    # A free dimension has no dim_value: 0 stands for one sample.
    count = math.prod(max(dim.dim_value, 1) for dim in tensor.shape.dim)
    return int(count * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize)


def _model_of(
    source: Model, typed: Model, nodes: Sequence[onnx.NodeProto], start: Cut, end: Cut
) -> Model:
    """Return these nodes of a model, with the constants they read, as a model of their own."""
    graph = source.proto.graph
    read = {name for node in nodes for name in _reads(node)}
    types = _types(typed.proto.graph)
    proto = onnx.ModelProto(ir_version=source.proto.ir_version)
    proto.opset_import.extend(source.proto.opset_import)
    proto.functions.extend(source.proto.functions)
    proto.metadata_props.extend(source.proto.metadata_props)
    proto.graph.name = graph.name
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(each for each in graph.initializer if each.name in read)
    proto.graph.sparse_initializer.extend(
        each for each in graph.sparse_initializer if each.values.name in read
    )
    proto.graph.input.extend(types[name] for name in start.tensors if name in read)
    made = [name for name in end.tensors if name not in start.tensors]
    proto.graph.output.extend(types.get(name, onnx.ValueInfoProto(name=name)) for name in made)
    return Model(source.name, proto)


def _text(node: onnx.NodeProto) -> bytes:
    return bytes(node.SerializeToString(deterministic=True))


def _changed_constants(graph: onnx.GraphProto, other: onnx.GraphProto) -> set[str]:
    """Return the constants of the graph that the other has with another value."""
    values = initializers(other)
    return {
        each.name
        for each in graph.initializer
        if each.name in values and not _same_values(each, values[each.name])
    }


def _same_values(one: onnx.TensorProto, other: onnx.TensorProto) -> bool:
    if one.data_type != other.data_type or one.dims != other.dims:
        return False
    # Comparing whole messages would first write both of them.
    return bool(one.raw_data == other.raw_data if one.raw_data else one == other)
