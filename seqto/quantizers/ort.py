"""What the quantizers share: options by name, the form of models, exclusions, precisions."""

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

import onnx
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.quant_utils import (
    add_infer_metadata,
    save_and_reload_model_with_shape_infer,
)

from seqto.errors import ConfigError, LayerError, ModelError, nearest
from seqto.graph.coded_sizes import coded_sizes
from seqto.graph.files import LARGE_TENSOR, changed
from seqto.graph.layers import RECURRENT, weight_layers, weights_of
from seqto.graph.links import Links
from seqto.graph.nodes import initializers, reads, subgraphs
from seqto.graph.reasons import why_no_layer
from seqto.graph.regions import left_in_float
from seqto.graph.relative_steps import relative_steps
from seqto.types import (
    CODED_STEPS,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    Candidate,
    Layer,
    Model,
    listed,
)
from seqto.types.storage import stored_bytes

QDQ_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operations with weights that ORT runs in integers between QDQ pairs."""

WEIGHT_OPS = (*QDQ_OPS, "Gather", *RECURRENT)
"""The operations that can be layers."""

_OPERATION = "op:"
_PLACES = {"first": slice(1), "last": slice(-1, None)}

_OVERHEAD = sys.getsizeof(b"")

IntegerType = Literal["int8", "uint8", "int16", "uint16"]

QUANT_TYPES: Mapping[str, QuantType] = {
    "int8": QuantType.QInt8,
    "uint8": QuantType.QUInt8,
    "int16": QuantType.QInt16,
    "uint16": QuantType.QUInt16,
}


def require_operations(op_types: Sequence[str] | None, known: Collection[str]) -> None:
    """Raise if an operation to quantize is misspelt: ORT would silently skip it."""
    for name in op_types or ():
        if name not in known:
            raise ConfigError(
                f"quantization.op_types names {name!r}, which is no operation that can be "
                f"quantized{nearest(name, sorted(known))}. Give ONNX operations, such as Conv."
            )


def with_shapes(model: Model) -> Model:
    """Return the model with the marks of shape inference that ORT's quantizers look for."""
    if not model.is_large:
        return Model(model.name, save_and_reload_model_with_shape_infer(model.proto))
    proto = changed(model.proto, _inferred)
    for tensor in proto.graph.initializer:
        # As ORT does for other models, so that the sha256 does not depend on the path taken.
        if tensor.HasField("raw_data") and stored_bytes(tensor) + _OVERHEAD >= LARGE_TENSOR:
            tensor.data_location = onnx.TensorProto.DEFAULT
    return Model(model.name, proto)


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    inferred = onnx.shape_inference.infer_shapes(proto)
    add_infer_metadata(inferred)
    return inferred


def find_layers(
    model: Model,
    op_types: Collection[str],
    exclude: Collection[str],
    integer_ops: Collection[str] = (),
) -> tuple[Layer, ...]:
    """Return the layers that candidates choose from: all except those never to be quantized.

    Those of `integer_ops` have a form in integers; the others are only stored in fewer bits.
    """
    layers = weight_layers(model, op_types)
    if not layers:
        raise ModelError(f"model {model.name!r} has no layer to quantize: {_why(model, op_types)}")
    never = never_quantized(layers, exclude)
    only = only_stored(model, layers, integer_ops)
    chosen = tuple(
        replace(layer, only_stored=layer.name in only)
        for layer in layers
        if layer.name not in never
    )
    if not chosen:
        raise ModelError(
            f"model {model.name!r} has no layer left to quantize: quantization.exclude names all "
            f"{len(layers)} of them. Leave at least one out of it."
        )
    return chosen


def never_quantized(layers: Sequence[Layer], exclude: Collection[str]) -> set[str]:
    """Return the layers that `quantization.exclude` means, by name, pattern or such."""
    matches = {word: _matching(word, layers) for word in exclude}
    unknown = [word for word, found in matches.items() if not found]
    if unknown:
        operations = sorted({f"{_OPERATION}{layer.op_type}" for layer in layers})
        names = [layer.name for layer in layers]
        raise LayerError(unknown, names, "quantization.exclude", operations)
    return {name for found in matches.values() for name in found}


def _matching(word: str, layers: Sequence[Layer]) -> list[str]:
    """Return the layers that one word of `quantization.exclude` means, in graph order."""
    names = [layer.name for layer in layers]
    # First, because a name may itself have the characters of a pattern, or be `first`.
    if word in names:
        return [word]
    if word in _PLACES:
        return names[_PLACES[word]]
    if word.startswith(_OPERATION):
        wanted = word.removeprefix(_OPERATION)
        return [layer.name for layer in layers if layer.op_type == wanted]
    return [name for name in names if fnmatchcase(name, word)]


def _why(model: Model, op_types: Collection[str]) -> str:
    """Return why a model has no layer of these operations, and what to do."""
    # Other operations may have layers: then those asked for are the reason.
    reason = "" if weight_layers(model, WEIGHT_OPS) else why_no_layer(model, WEIGHT_OPS)
    kinds = ", ".join(sorted(op_types))
    present = ", ".join(sorted({node.op_type for node in model.proto.graph.node})) or "no nodes"
    return reason or (
        f"none of its nodes is one of {kinds} with constant float weights (it has {present}). "
        "Choose another model, or check quantization.op_types and quantization.exclude."
    )


def require_precisions(candidate: Candidate, precisions: Collection[str], quantizer: str) -> None:
    """Raise if a layer has a precision that this quantizer does not support."""
    for layer, precision in candidate.precisions:
        if precision not in precisions:
            raise ConfigError(
                f"quantization={quantizer} has no precision {precision!r}, which layer {layer!r} "
                f"is to have{nearest(precision, precisions)}. Choose from {listed(precisions)}."
            )


def in_precisions(candidate: Candidate, precisions: Collection[str]) -> dict[str, str]:
    """Return the layers that have one of these precisions, with their precision."""
    return {name: each for name, each in candidate.precisions if each in precisions}


def with_storage(
    model: Model, layers: Sequence[Layer], block: int, precisions: Collection[str] = ()
) -> tuple[Layer, ...]:
    """Return the layers with what it takes and does to store them in fewer bits.

    `precisions` are those that only store weights. By default these are the usual ones, and for
    layers that have no other form all.
    """
    constants = initializers(model.proto.graph)
    nodes = {node.name: node for node in model.proto.graph.node}
    sizes = coded_sizes(model, layers)
    usual = (*CODED_STEPS, INT4, FLOAT16)
    found = []
    for layer in layers:
        kinds = precisions or (*usual, *((INT8, INT16) if layer.only_stored else ()))
        steps = relative_steps(nodes[layer.name], constants, kinds, block)
        found.append(replace(layer, coded_bytes=sizes[layer.name], steps=steps))
    return tuple(found)


def only_stored(
    model: Model, layers: Sequence[Layer], integer_ops: Collection[str]
) -> frozenset[str]:
    """Return the layers that run in float in every precision: only their weights become smaller.

    These are the layers that ORT has no integer form of, and those that share a weight with them,
    so that it is in the file once.
    """
    constants = initializers(model.proto.graph)
    nodes = {node.name: node for node in model.proto.graph.node}
    weights = {
        layer.name: {each.name for each in weights_of(nodes[layer.name], constants)}
        for layer in layers
    }
    readers = Counter(name for names in weights.values() for name in names)
    found = {
        layer.name
        for layer in layers
        if layer.op_type not in integer_ops
        # ORT changes the form of their weights for itself alone.
        or (layer.op_type in RECURRENT and any(readers[name] > 1 for name in weights[layer.name]))
    }
    shared = {name for layer in found for name in weights[layer]}
    return frozenset(found | {name for name, its in weights.items() if its & shared})


def to_store(candidate: Candidate, only: Collection[str]) -> dict[str, str]:
    """Return the layers whose weights become smaller although they run in float."""
    return {
        name: precision
        for name, precision in candidate.precisions
        if precision in (*CODED_STEPS, INT4, FLOAT16)
        or (precision in (INT8, INT16) and name in only)
    }


def left_by_ort(graph: onnx.GraphProto, candidate: Candidate) -> dict[str, str]:
    """Return the integer layers whose weights ORT left in float, such as a MatMul's on its left."""
    constants = initializers(graph)
    wanted = in_precisions(candidate, (INT8, INT16))
    return {
        node.name: wanted[node.name]
        for node in graph.node
        if node.name in wanted and weights_of(node, constants)
    }


def nodes_to_exclude(
    links: Links, candidate: Candidate, always: Collection[str], only: Collection[str] = ()
) -> list[str]:
    """Return all nodes that ORT must not quantize for this candidate.

    A layer whose weights are only stored in fewer bits counts as float: it computes in float.
    """
    layers = {name for name, _ in candidate.precisions} | set(always)
    integer = in_precisions(candidate, (INT8, INT16)).keys() - set(only)
    excluded = layers - integer | set(always)
    left = left_in_float(links, layers, excluded)
    return sorted(excluded) + left + _last_softmaxes(links, {*excluded, *left})


def _last_softmaxes(links: Links, known: Collection[str]) -> list[str]:
    """Return the softmaxes that make the model's outputs, except those in `known`.

    In steps of 1/256, most probabilities would be 0 and the others equal, without a byte saved.
    """
    return [
        node.name
        for node in links.nodes
        if node.op_type in ("Softmax", "LogSoftmax")
        and links.outputs.intersection(node.output)
        and node.name not in known
    ]


def clipped_for_branches(links: Links) -> list[str]:
    """Return the Relus and Clips that a graph inside a node reads.

    ORT removes them and leaves it to QuantizeLinear to clip, whose output that graph does not read.
    """
    inside = {
        name
        for node in links.nodes
        for graph in subgraphs(node)
        for inner in graph.node
        for name in reads(inner)
    }
    return [
        node.name
        for node in links.nodes
        if node.op_type in ("Relu", "Clip") and inside.intersection(node.output)
    ]


def tensors_around(links: Links, layers: Collection[str]) -> set[str]:
    """Return the activations that these layers read and write.

    Operations with one input, such as Clip, are looked through: the activations on both sides of
    them count. A Relu that ORT removes would otherwise leave its own precision behind.
    """

    def activations(node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name and name not in links.constants]

    # A Gather of activations is looked through, too.
    opaque = {*QDQ_OPS, *RECURRENT}
    found: set[str] = set()
    pending = [
        name
        for node in links.nodes
        if node.name in layers
        for name in (*activations(node), *node.output)
    ]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for node in (*links.readers(name), links.maker(name)):
            if node is not None and node.op_type not in opaque and len(activations(node)) == 1:
                pending.extend((*activations(node), *node.output))
    return found
