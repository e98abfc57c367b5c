"""Models above the size of one protobuf message: apart from their weights, and as two files.

Tools that read a whole model as one message get the graph alone: its large weights are references
then, as of external data. A smaller model goes through every function here whole.
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

from seqto.types import Model
from seqto.types.storage import copy_fields, is_large, stored_bytes
from seqto.workspace import written_whole

LARGE_TENSOR = 1024
"""Bytes from which on a weight stands beside the graph; shapes and axes stay in it."""

_ALIGNMENT = 64
"""Of weights in their file, for a runtime that computes with them where they lie."""

_TYPES_IN_THE_GRAPH = (TensorProto.STRING, TensorProto.UNDEFINED)
_ADDED = ".data"

Weights = Mapping[int, onnx.TensorProto]
"""The weights of a graph, by where they begin in the file that it says they are in."""


def stripped(proto: onnx.ModelProto, location: str = "weights") -> tuple[onnx.ModelProto, Weights]:
    """Return a copy that may be changed, and the weights that it only refers to.

    These are the tensors of the given model: a copy of them would double its memory. There are
    none if the model is not too large for one message.
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
    """Return what `change` makes of a copy of the model; a large one it gets without weights."""
    light, weights = stripped(proto)
    return attach(change(light), weights)


def compact(proto: onnx.ModelProto, source: Model) -> onnx.ModelProto:
    """Return what was made of a model, of a large one in no more memory than it needs."""
    if not source.is_large:
        return proto
    # Protobuf still holds what was deleted from a message: here, the float weights.
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def save_model(model: Model, path: Path) -> None:
    """Write the model to this file, and weights that it cannot hold to one beside it."""
    light, weights = stripped(model.proto, path.name + _ADDED)
    if weights:
        # First, so that a graph that is there has its weights.
        with written_whole(path.with_name(path.name + _ADDED)) as temporary:
            _write(weights, temporary)
    with written_whole(path) as temporary:
        temporary.write_bytes(light.SerializeToString(deterministic=True))


def read_weights(proto: onnx.ModelProto, folder: Path) -> None:
    """Put the tensors that lie in files of this folder into memory."""
    load_external_data_for_model(proto, str(folder))
    for tensor in proto.graph.initializer:
        # Said or not it means the same, but then a model has one sha256 however it is stored.
        if tensor.data_location == TensorProto.DEFAULT:
            tensor.ClearField("data_location")


def buffer(weights: Weights) -> np.ndarray:
    """Return in memory what a file of these weights would hold."""
    whole = np.zeros(_end(weights), np.uint8)
    for start, content in _contents(weights):
        whole[start : start + len(content)] = np.frombuffer(content, np.uint8)
    return whole


def save_hollow(light: onnx.ModelProto, weights: Weights, path: Path) -> None:
    """Write a graph and a file of the size of its weights, with nothing in it."""
    path.write_bytes(light.SerializeToString(deterministic=True))
    locations = {
        ExternalDataInfo(each).location
        for each in light.graph.initializer
        if uses_external_data(each)
    }
    for location in locations:
        with (path.parent / location).open("wb") as file:
            # A hole takes no room on the disk.
            file.truncate(_end(weights))


def _write(weights: Weights, path: Path) -> None:
    with path.open("wb") as file:
        for start, content in _contents(weights):
            file.seek(start)
            file.write(content)


def _contents(weights: Weights) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of each weight, and where they begin."""
    for start, tensor in weights.items():
        if not tensor.HasField("raw_data"):
            tensor = numpy_helper.from_array(numpy_helper.to_array(tensor))
        yield start, tensor.raw_data


def _end(weights: Weights) -> int:
    start = max(weights, default=0)
    return start + stored_bytes(weights[start]) if weights else 0


def _reference(tensor: onnx.TensorProto, location: str, start: int) -> onnx.TensorProto:
    """Return the tensor without its values, which are said to be in a file."""
    light = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    light.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": start, "length": stored_bytes(tensor)}
    for key, value in entries.items():
        light.external_data.add(key=key, value=str(value))
    return light
