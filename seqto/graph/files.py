"""Models too large for one protobuf message: graph and weights are kept and saved separately.

Tools that read a model as one message get only the graph, in which large weights are references to
external data. A model that fits into one message stays whole in every function here.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import (
    ExternalDataInfo,
    load_external_data_for_model,
    uses_external_data,
)

from seqto.graph.decoders import DOMAIN
from seqto.graph.short_names import shorten_names
from seqto.types import Model
from seqto.types.storage import copy_fields, is_large, stored_bytes
from seqto.workspace import written_whole

LARGE_TENSOR = 1024
"""Weights of this many bytes or more are kept apart from the graph; shapes and axes stay in it."""

_ALIGNMENT = 64
"""Alignment of weights in their file, so that a runtime can use them without copying them."""

_TYPES_IN_THE_GRAPH = (TensorProto.STRING, TensorProto.UNDEFINED)
_ADDED = ".data"

Weights = Mapping[int, onnx.TensorProto]
"""The weights of a graph, by their offset in the file that the graph refers to."""


def stripped(proto: onnx.ModelProto, location: str = "weights") -> tuple[onnx.ModelProto, Weights]:
    """Return a copy that may be changed, and the weights that it only refers to.

    The weights are the given model's own tensors: copies would double its memory. A model that
    fits into one message is copied whole, and there are no weights apart from it.
    """
    light = onnx.ModelProto()
    if not is_large(proto):
        light.CopyFrom(proto)
        return light, {}
    copy_fields(proto, light, ["graph"])
    copy_fields(proto.graph, light.graph, ["initializer"])
    weights: dict[int, onnx.TensorProto] = {}
    end = 0
    for tensor in proto.graph.initializer:
        if stored_bytes(tensor) < LARGE_TENSOR or tensor.data_type in _TYPES_IN_THE_GRAPH:
            light.graph.initializer.append(tensor)
            continue
        weights[end] = tensor
        light.graph.initializer.append(_reference(tensor, location, end))
        end += -(-stored_bytes(tensor) // _ALIGNMENT) * _ALIGNMENT
    return light, weights


def attach(light: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """Return the graph, which is changed, with copies of the weights that it refers to."""
    for tensor in light.graph.initializer if weights else ():
        if uses_external_data(tensor):
            name = tensor.name
            tensor.CopyFrom(weights[ExternalDataInfo(tensor).offset or 0])
            tensor.name = name
    return light


def changed(
    proto: onnx.ModelProto, change: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return what `change` returns for a copy of the model; a large one has no weights then."""
    light, weights = stripped(proto)
    return attach(change(light), weights)


def compact(proto: onnx.ModelProto, *, brief: bool = False) -> onnx.ModelProto:
    """Return the model without what only quantizers need.

    That is the shapes of its activations, which can be a tenth of a small file, and memory, unless
    the model is of use only briefly. Shapes that functions of the model need to be folded stay.
    Models with coded weights, which are to be small above all, have short names inside.
    """
    made = {name for node in proto.graph.node if node.domain == DOMAIN for name in node.output}
    kept = [each for each in proto.graph.value_info if each.name in made]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)
    if brief:
        return proto
    if made:
        shorten_names(proto.graph)
    # A protobuf message keeps the memory of what was deleted from it: here, the float weights.
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def save_model(model: Model, path: Path) -> None:
    """Write the model to this file, and weights that do not fit into it to a file beside it."""
    light, weights = stripped(model.proto, path.name + _ADDED)
    if weights:
        # Weights first: whenever the graph's file exists, its weights do too.
        with written_whole(path.with_name(path.name + _ADDED)) as temporary:
            _write(weights, temporary)
    with written_whole(path) as temporary:
        temporary.write_bytes(light.SerializeToString(deterministic=True))


def read_weights(proto: onnx.ModelProto, folder: Path) -> None:
    """Load the tensors that are stored in files of this folder into memory."""
    _require_whole(proto, folder)
    load_external_data_for_model(proto, str(folder))
    for tensor in proto.graph.initializer:
        # The default is the same as no value, but would give the model another sha256.
        if tensor.data_location == TensorProto.DEFAULT:
            tensor.ClearField("data_location")


def _require_whole(proto: onnx.ModelProto, folder: Path) -> None:
    """Raise if a file ends before the tensors in it do, which onnx 1.19 does not notice."""
    for tensor in filter(uses_external_data, proto.graph.initializer):
        info = ExternalDataInfo(tensor)
        path = folder / info.location
        end = (info.offset or 0) + (info.length or 0)
        # A file that is missing is told by onnx.
        if path.is_file() and path.stat().st_size < end:
            raise ValueError(f"{info.location} is cut short: it should have {end} bytes")


def buffer(weights: Weights) -> np.ndarray:
    """Return the content that a file of these weights would have."""
    whole = np.zeros(_end(weights), np.uint8)
    for start, content in _contents(weights):
        whole[start : start + len(content)] = np.frombuffer(content, np.uint8)
    return whole


def save_hollow(light: onnx.ModelProto, weights: Weights, path: Path) -> None:
    """Write a graph, and in place of its weights an empty file of their size."""
    path.write_bytes(light.SerializeToString(deterministic=True))
    locations = {
        ExternalDataInfo(each).location
        for each in light.graph.initializer
        if uses_external_data(each)
    }
    for location in locations:
        with (path.parent / location).open("wb") as file:
            # A sparse file takes no space on the disk.
            file.truncate(_end(weights))


def _write(weights: Weights, path: Path) -> None:
    with path.open("wb") as file:
        for start, content in _contents(weights):
            file.seek(start)
            file.write(content)


def _contents(weights: Weights) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each weight."""
    for start, tensor in weights.items():
        if not tensor.HasField("raw_data"):
            tensor = numpy_helper.from_array(numpy_helper.to_array(tensor))
        yield start, tensor.raw_data


def _end(weights: Weights) -> int:
    start = max(weights, default=0)
    return start + stored_bytes(weights[start]) if weights else 0


def _reference(tensor: onnx.TensorProto, location: str, start: int) -> onnx.TensorProto:
    """Return the tensor as a reference to its values in a file."""
    light = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    light.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": start, "length": stored_bytes(tensor)}
    for key, value in entries.items():
        light.external_data.add(key=key, value=str(value))
    return light
