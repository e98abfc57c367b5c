"""The bytes of models as files, also above protobuf's size limit.

In memory an onnx.ModelProto may have any size, but above LIMIT it cannot be serialized in one
piece: no SerializeToString, no ByteSize, no session from bytes.
"""

import itertools
import math
from collections.abc import Collection, Iterator

import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper

LIMIT = onnx.checker.MAXIMUM_PROTOBUF
"""The largest size of a protobuf message in bytes."""

_SHARE_OF_WEIGHTS = 0.97
"""The share of the limit that weights may take; 64 MB are left for nodes and names."""

_FOUR_BITS = (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
_WITH_LENGTH = 2
"""Protobuf's wire type of messages and bytes."""


def is_large(proto: onnx.ModelProto) -> bool:
    """Tell whether the model's weights are too large for one file."""
    return sum(map(stored_bytes, proto.graph.initializer)) > _SHARE_OF_WEIGHTS * LIMIT


def stored_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor's values in bytes, from its type and shape."""
    # Not len(raw_data), which would copy the data first.
    count = int(math.prod(tensor.dims))
    if tensor.data_type in _FOUR_BITS:
        return (count + 1) // 2
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def chunks(proto: onnx.ModelProto) -> Iterator[bytes]:
    """Yield the bytes that the model's file would have, in pieces; each weight is one."""
    for piece in _pieces(proto):
        yield piece if isinstance(piece, bytes) else piece.raw_data


def file_size(proto: onnx.ModelProto) -> int:
    """Return how many bytes the model's file would have."""
    return _length(_pieces(proto))


def copy_fields(source: Message, target: Message, without: Collection[str]) -> None:
    """Copy all fields except `without` from one message to another of the same type."""
    # Not with ListFields, which would copy the excluded values as well.
    for field in source.DESCRIPTOR.fields:
        name = field.name
        if name in without:
            continue
        if field.is_repeated:
            getattr(target, name).extend(getattr(source, name))
        elif source.HasField(name) and field.message_type is not None:
            getattr(target, name).CopyFrom(getattr(source, name))
        elif source.HasField(name):
            setattr(target, name, getattr(source, name))


def _pieces(proto: onnx.ModelProto) -> list[bytes | onnx.TensorProto]:
    """Return the model's file in order; a tensor stands for its raw data."""
    before, key, after = _around(proto, "graph")
    head, tensor_key, tail = _around(proto.graph, "initializer")
    tensors = [_tensor_pieces(tensor, tensor_key) for tensor in proto.graph.initializer]
    weights = list(itertools.chain.from_iterable(tensors))
    length = len(head) + len(tail) + _length(weights)
    return [before + key + _varint(length) + head, *weights, tail + after]


def _tensor_pieces(tensor: onnx.TensorProto, tensor_key: bytes) -> list[bytes | onnx.TensorProto]:
    """Return one initializer as it appears in the model's file."""
    start, key, end = _around(tensor, "raw_data")
    pieces: list[bytes | onnx.TensorProto] = [start, end]
    if tensor.HasField("raw_data"):
        pieces = [start + key + _varint(stored_bytes(tensor)), tensor, end]
    return [tensor_key + _varint(_length(pieces)), *pieces]


def _length(pieces: list[bytes | onnx.TensorProto]) -> int:
    return sum(len(each) if isinstance(each, bytes) else stored_bytes(each) for each in pieces)


def _around(message: Message, name: str) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before a field, the field's key, and the bytes after the field."""
    # Protobuf writes fields in the order of their numbers.
    fields = message.DESCRIPTOR.fields
    at = message.DESCRIPTOR.fields_by_name[name].number
    before, after = type(message)(), type(message)()
    copy_fields(message, before, {each.name for each in fields if each.number >= at})
    copy_fields(message, after, {each.name for each in fields if each.number <= at})
    key = _varint(at << 3 | _WITH_LENGTH)
    return _bytes(before), key, _bytes(after)


def _bytes(message: Message) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _varint(number: int) -> bytes:
    """Return a number as protobuf's varint: seven bits per byte, the lowest first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
