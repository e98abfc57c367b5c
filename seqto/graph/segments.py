"""Cuts graphs into parts that run one after another, and finds where two graphs differ."""

import functools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import onnx
from onnx import TensorProto, helper

from seqto.graph.inferred_shapes import inferred_values
from seqto.graph.links import Links
from seqto.graph.nodes import initializers, reads, replace_nodes
from seqto.graph.unpacking import decode_weights
from seqto.types import Model

_UNFUSED_READERS = {"Conv", "ConvTranspose", "Gemm", "DynamicQuantizeLinear"}
"""Operations that ONNX Runtime does not fuse with the node that makes their first input."""


@dataclass(frozen=True)
class Cut:
    """A place before the node at `position`; the nodes from there on need these tensors."""

    position: int
    tensors: tuple[str, ...]
    sample_bytes: int
    """The size of the tensors for one sample, as far as their shapes are known."""


@dataclass(frozen=True)
class Span:
    """The nodes from `first` up to, not including, `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class _Outline:
    """What is asked again and again of a model that does not change, each found at most once."""

    graph: onnx.GraphProto

    @functools.cached_property
    def texts(self) -> tuple[bytes, ...]:
        """Each node's text, by which nodes of two models are equal."""
        return tuple(_text(node) for node in self.graph.node)

    @functools.cached_property
    def readers(self) -> Mapping[str, Sequence[int]]:
        """The positions of the nodes that read each tensor."""
        found: dict[str, list[int]] = defaultdict(list)
        for position, node in enumerate(self.graph.node):
            for name in reads(node):
                found[name].append(position)
        return found

    @functools.cached_property
    def types(self) -> Mapping[str, onnx.ValueInfoProto]:
        """The tensors whose type the graph declares."""
        return _types(self.graph)


_outlines: "WeakKeyDictionary[Model, _Outline]" = WeakKeyDictionary()
"""The outlines of the models that somebody still holds."""


def _outline(model: Model) -> _Outline:
    """Return the outline of this very model."""
    found = _outlines.get(model)
    if found is None:
        found = _outlines[model] = _Outline(model.proto.graph)
    return found


def find_cuts(model: Model, outputs: Sequence[str] | None = None) -> tuple[Cut, ...]:
    """Return places to cut what computes these outputs: where few bytes are kept, in order.

    By default it is the first output. The first cut is before all nodes; the last one is after them
    and has only those outputs.
    """
    every = _places(model.proto.graph, outputs or [model.proto.graph.output[0].name])
    inner = [
        here
        for before, here, after in zip(every, every[1:], every[2:], strict=False)
        if before.sample_bytes >= here.sample_bytes <= after.sample_bytes
    ]
    return (every[0], *inner, every[-1])


def clean_cuts(model: Model) -> tuple[Cut, ...]:
    """Return the cuts at which the parts compute, bit for bit, what the whole graph computes.

    Expects a model from `in_order`, with one output. Fusions and layouts of tensors end at
    quantized tensors and before layers. They do not end before an addition, for example: the Conv
    before it may do it.
    """
    graph = model.proto.graph
    links = Links(graph)
    closed = {each.name for each in graph.input} | {
        name
        for name, value in _types(graph).items()
        # ONNX Runtime may make signed ones unsigned, together with their readers.
        if (maker := links.maker(name)) is not None
        and maker.op_type == "QuantizeLinear"
        and value.type.tensor_type.elem_type in (TensorProto.UINT8, TensorProto.UINT16)
    }

    def is_clean(tensor: str) -> bool:
        return tensor in closed or all(
            node.op_type in _UNFUSED_READERS for node in links.readers(tensor)
        )

    every = _places(graph, [graph.output[0].name])
    inner = [cut for cut in every[1:-1] if all(map(is_clean, cut.tensors))]
    return (every[0], *inner, every[-1])


def in_order(model: Model) -> Model:
    """Return the nodes that the first output needs, each just before the first one that reads it.

    The order depends on the graph alone, so models that compute the same at first also have the
    same first nodes. Each reader of a dequantized tensor gets a DequantizeLinear of its own, as
    ONNX Runtime does it: what is passed from part to part is then still quantized.
    """
    proto = model.copy_proto()
    # All coded weights come from a few streams: parts of the model cannot share them.
    decode_weights(proto)
    graph = proto.graph
    if not graph.value_info:
        graph.value_info.extend(inferred_values(proto))
    replace_nodes(graph, _reading_alone(graph))
    links = Links(graph)
    last = links.maker(graph.output[0].name)
    pending = [] if last is None else [last]
    # Nodes are told apart by identity: messages cannot be hashed.
    seen, placed = set(map(id, pending)), []
    while pending:
        missing = next((each for each in links.before(pending[-1]) if id(each) not in seen), None)
        if missing is None:
            placed.append(pending.pop())
        else:
            pending.append(missing)
            seen.add(id(missing))
    replace_nodes(graph, placed)
    graph.value_info.extend(_quantized_types(graph))
    return Model(model.name, proto, model.session)


def common_nodes(one: Model, other: Model) -> int:
    """Return how many first nodes of both models are equal and read equal constants."""
    first, second = one.proto, other.proto
    if one.session != other.session or _setting(first) != _setting(second):
        return 0
    constants = initializers(first.graph), initializers(second.graph)
    count = 0
    for mine, theirs in zip(first.graph.node, second.graph.node, strict=False):
        if _text(mine) != _text(theirs) or not all(
            _same_constant(*(each.get(name) for each in constants)) for name in reads(mine)
        ):
            break
        count += 1
    return count


def part(model: Model, start: Cut, end: Cut) -> Model:
    """Return the nodes between two cuts as a model, from the tensors at `start` to those at `end`.

    Tensors that both cuts have are not among its outputs.
    """
    nodes = model.proto.graph.node[start.position : end.position]
    return _model_of(model, model, nodes, start, end)


def changed_part(model: Model, changed: Model, start: Cut, end: Cut) -> Model:
    """Return what the changed model has in place of the nodes between two cuts of the original.

    The cuts must enclose `changed_span`.
    """
    texts = _outline(model).texts
    outside = {*texts[: start.position], *texts[end.position :]}
    pairs = zip(_outline(changed).texts, changed.proto.graph.node, strict=True)
    inside = [node for text, node in pairs if text not in outside]
    return _model_of(changed, model, inside, start, end)


def changed_span(model: Model, changed: Model) -> Span:
    """Return the span outside which both models are the same; empty if they are equal."""
    kept = set(_outline(changed).texts)
    outline = _outline(model)
    positions = {position for position, text in enumerate(outline.texts) if text not in kept}
    for name in _changed_constants(model.proto.graph, changed.proto.graph):
        positions.update(outline.readers.get(name, ()))
    return Span(min(positions), max(positions) + 1) if positions else Span(0, 0)


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


def _places(graph: onnx.GraphProto, outputs: Sequence[str]) -> list[Cut]:
    """Return the places where all tensors needed later have known types, and the end."""
    types = _types(graph)
    return [
        Cut(position, tensors, sum(_sample_bytes(types[name]) for name in tensors if name in types))
        for position, tensors in enumerate(_live(graph, outputs))
        # A part cannot have inputs of unknown type.
        if position == len(graph.node) or all(name in types for name in tensors)
    ]


def _live(graph: onnx.GraphProto, outputs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield for each place between nodes the tensors that exist there and are needed later."""
    constants = initializers(graph)
    last_use = {name: place for place, node in enumerate(graph.node) for name in reads(node)}
    last_use |= dict.fromkeys(outputs, len(graph.node))
    alive = [each.name for each in graph.input if each.name not in constants]
    for place in range(len(graph.node) + 1):
        alive = [name for name in alive if last_use.get(name, -1) >= place]
        yield tuple(alive)
        if place < len(graph.node):
            alive.extend(graph.node[place].output)


def _types(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the tensors whose type the graph declares."""
    values = (*graph.input, *graph.value_info, *graph.output)
    return {each.name: each for each in values if each.type.tensor_type.elem_type}


def _sample_bytes(value: onnx.ValueInfoProto) -> int:
    tensor = value.type.tensor_type
    # A free dimension has dim_value 0, and counts as one sample.
    count = math.prod(max(dim.dim_value, 1) for dim in tensor.shape.dim)
    return int(count * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize)


def _model_of(
    source: Model, typed: Model, nodes: Sequence[onnx.NodeProto], start: Cut, end: Cut
) -> Model:
    """Return these nodes of a model, with the constants they read, as a model of their own."""
    graph = source.proto.graph
    read = {name for node in nodes for name in reads(node)}
    types = _outline(typed).types
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
    return Model(source.name, proto, source.session)


def _reading_alone(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes, with a separate DequantizeLinear for each reader of a dequantized tensor.

    Dequantized constants stay shared.
    """
    constants = initializers(graph)
    shared = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] not in constants
    }
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for name in {each for each in node.input if each in shared}:
            own = onnx.NodeProto()
            own.CopyFrom(shared[name])
            own.name = own.output[0] = f"{name} for {node.output[0]}"
            node.input[:] = [own.name if each == name else each for each in node.input]
            nodes.append(own)
        nodes.append(node)
    return nodes


def _quantized_types(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the types of quantized tensors, which quantizers do not write into the graph."""
    types, constants = _types(graph), initializers(graph)
    for node in graph.node:
        zero_point = constants.get(node.input[2]) if len(node.input) > 2 else None
        quantized = node.op_type == "QuantizeLinear" and node.output[0] not in types
        if quantized and node.input[0] in types and zero_point is not None:
            value = onnx.ValueInfoProto()
            value.CopyFrom(types[node.input[0]])
            value.name = node.output[0]
            value.type.tensor_type.elem_type = zero_point.data_type
            yield value


def _setting(proto: onnx.ModelProto) -> tuple[object, ...]:
    """Return what else the result of a model's nodes depends on: opsets, inputs, functions."""
    opsets = sorted((each.domain, each.version) for each in proto.opset_import)
    others = (*proto.graph.input, *proto.graph.sparse_initializer, *proto.functions)
    texts = [each.SerializeToString(deterministic=True) for each in others]
    return proto.ir_version, opsets, texts


def _same_constant(one: onnx.TensorProto | None, other: onnx.TensorProto | None) -> bool:
    if one is None or other is None:
        return one is other
    return _same_values(one, other)


def _text(node: onnx.NodeProto) -> bytes:
    return bytes(node.SerializeToString(deterministic=True))


def _changed_constants(graph: onnx.GraphProto, other: onnx.GraphProto) -> set[str]:
    """Return the graph's constants that have another value in the other graph, or are none there.

    If a layer in int8 shares its weight, ONNX Runtime makes the float layers read that weight from
    a DequantizeLinear under its old name.
    """
    values = initializers(other)
    return {
        each.name
        for each in graph.initializer
        if each.name not in values or not _same_values(each, values[each.name])
    }


def _same_values(one: onnx.TensorProto, other: onnx.TensorProto) -> bool:
    # Python would copy the content of both to compare it alone.
    return bool(one == other)
