"""Activations that several models begin with, kept in a file while the first of them runs."""

import contextlib
import io
import tempfile
from dataclasses import dataclass, field

import numpy as np

from seqto.graph.segments import Cut
from seqto.types import Arrays

_IN_MEMORY = 2**24
"""How many bytes of activations stay in memory."""


@dataclass(frozen=True)
class _Stored:
    """Where an array is in the file."""

    at: int
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(eq=False)
class Kept:
    """The activations at a cut, by the number of the batch.

    The file has no name, so that it is gone with its process. What it cannot hold stays in memory.
    """

    cut: Cut
    size: int = 0
    _batches: dict[int, dict[str, np.ndarray | _Stored]] = field(default_factory=dict)
    _file: io.FileIO | None = None
    _end: int = 0

    def add(self, number: int, tensors: Arrays) -> None:
        """Keep the activations of one more batch."""
        self.size += sum(each.nbytes for each in tensors.values())
        held: dict[str, np.ndarray | _Stored] = dict(tensors)
        if self.size > _IN_MEMORY:
            with contextlib.suppress(OSError):
                held |= {name: self._stored(each) for name, each in tensors.items()}
        self._batches[number] = held

    def batch(self, number: int) -> Arrays:
        """Return the activations of a batch."""
        return {
            name: self._read(each) if isinstance(each, _Stored) else each
            for name, each in self._batches[number].items()
        }

    def _stored(self, array: np.ndarray) -> np.ndarray | _Stored:
        if array.dtype.hasobject or not array.size:
            return array
        if self._file is None:
            # Without a buffer, what could not be written is not tried again later.
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this
        at = self._end
        self._file.seek(at)
        rest = _bytes_of(np.ascontiguousarray(array))
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end = self._file.tell()
        return _Stored(at, array.dtype, array.shape)

    def _read(self, stored: _Stored) -> np.ndarray:
        assert self._file is not None
        self._file.seek(stored.at)
        found = np.empty(stored.shape, stored.dtype)
        rest = _bytes_of(found)
        while rest:
            count = self._file.readinto(rest)
            if not count:
                raise OSError("a file of activations ends too early")
            rest = rest[count:]
        return found


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the array's memory as bytes, also where only numpy knows its type."""
    return array.reshape(-1).view(np.uint8).data
