"""Models in memory, their inputs, kernels and latency."""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from seqto.errors import ModelError
from seqto.types.storage import chunks, file_size, is_large

Ranges = Mapping[str, tuple[float, float]]
"""The smallest and largest value that calibration saw in each activation."""

Learned = Mapping[str, np.ndarray]
"""What a quantizer learned from samples about a model's weights, under names of its own."""


@dataclass(frozen=True)
class TensorSpec:
    """An input of a model as its graph declares it; None is a free dimension."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name!r} {self.dtype}[{dims}]"


@dataclass(frozen=True, eq=False)
class Model:
    """An ONNX model in memory, with the name that users see.

    `session` has the session options that ONNX Runtime needs to run it as intended. `learned` is
    what its quantizer learned from samples; it is no part of the model's file.
    """

    name: str
    proto: onnx.ModelProto
    session: Mapping[str, str] = field(default_factory=dict)
    learned: Learned = field(default_factory=dict)

    def copy_proto(self) -> onnx.ModelProto:
        """Return a copy that may be changed."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        return copy

    @property
    def is_large(self) -> bool:
        """Whether it is too large for one ONNX file."""
        return is_large(self.proto)

    def to_bytes(self) -> bytes:
        """Return the bytes of its ONNX file."""
        if self.is_large:
            raise ModelError(
                f"Model {self.name} is too large for one ONNX file ({self.size / 2**30:.1f} GiB): "
                "save it with seqto.graph.files, and open it with seqto.graph.sessions."
            )
        # Deterministic, so that the same graph always has the same sha256.
        return bytes(self.proto.SerializeToString(deterministic=True))

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of its ONNX file, in pieces if it is too large for one file."""
        if self.is_large:
            yield from chunks(self.proto)
        else:
            yield self.to_bytes()

    @property
    def size(self) -> int:
        """The size of its ONNX file in bytes, even if it is too large for one file."""
        return file_size(self.proto) if self.is_large else int(self.proto.ByteSize())

    @functools.cached_property
    def digest(self) -> str:
        """The sha256 of its file, and of its session options if it needs any."""
        options = json.dumps(dict(self.session), sort_keys=True) if self.session else ""
        digest = hashlib.sha256()
        for each in self.chunks():
            digest.update(each)
        digest.update(options.encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Kernel:
    """An operation that a device runs; several nodes of a model may run as one."""

    name: str
    op_type: str

    @property
    def is_integer(self) -> bool:
        """Whether it computes with integers."""
        return "Integer" in self.op_type or (
            self.op_type.startswith("Q") and self.op_type != "QuantizeLinear"
        )


@dataclass(frozen=True)
class Loading:
    """What loading a model took: milliseconds, and bytes of memory beyond those held before.

    `peak_bytes` is the most that was held meanwhile; None if the system does not tell.
    """

    ms: float
    peak_bytes: float | None


@dataclass(frozen=True)
class Latency:
    """Milliseconds of single-sample inference: the median and the 10th and 90th percentile."""

    median_ms: float
    p10_ms: float
    p90_ms: float
