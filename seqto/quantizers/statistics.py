"""Means and second moments of what layers multiply their weights with, over samples."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqto.graph.inner import with_outputs
from seqto.graph.packing import even_blocks
from seqto.graph.patches import LayerInput, rows_of
from seqto.graph.sessions import run_named, single_session
from seqto.phases import counted
from seqto.types import Arrays, Model, Samples

_ROWS, _ENOUGH = 64, 32
"""At most how many rows of a sample count, because neighbours are alike, and how many of all
samples for each column: more would hardly change what is learned."""

_COLUMNS = 2048
"""At most how many columns have moments with each other: those of 8192 would take 0.5 GB."""

_HELD_BYTES = 2**20
"""How much is gathered before it is multiplied: few rows at a time would be slow."""


@dataclass(frozen=True, eq=False)
class Moments:
    """The mean of each column, `[groups, columns]`, and the means of their products.

    The products are those within parts of the columns: an array `[groups, columns, columns]` for
    each part.
    """

    rows: int
    mean: np.ndarray
    products: tuple[np.ndarray, ...]

    @property
    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The products, each with the columns that it is of."""
        start = 0
        for each in self.products:
            yield slice(start, start + each.shape[-1]), each
            start += each.shape[-1]


def moments_of(
    model: Model, samples: Samples, readings: Collection[LayerInput]
) -> dict[LayerInput, Moments]:
    """Return the moments of what is read; without those of inputs that have no finite rows.

    Of each sample at most 64 rows count, drawn with a fixed seed.
    """
    names = sorted({each.tensor for each in readings})
    given = {each.name for each in model.proto.graph.input}
    # An input that is also an output may be returned by ORT in memory that is already freed.
    outputs = [name for name in names if name not in given]
    session = single_session(with_outputs(model, outputs))
    sums = {each: _Sums() for each in readings}
    size = samples.fixed_batch or 1
    batches = math.ceil(len(samples) / (samples.fixed_batch or 1))
    for index, inputs in enumerate(counted("learning", samples.batches(1), batches)):
        values: Arrays = {**inputs, **run_named(session, outputs, inputs)}
        counts = None if samples.mask is None else samples.mask[index * size : (index + 1) * size]
        for reading, sum_ in sums.items():
            draw = np.random.default_rng(index)
            most = size * _rows(sum_.columns, len(samples))
            sum_.add(rows_of(values[reading.tensor], reading, most, draw, counts))
    found = {each: sum_.moments() for each, sum_ in sums.items()}
    return {each: moments for each, moments in found.items() if moments is not None}


def moments_bytes(groups: int, columns: int) -> int:
    """Return how many bytes the moments of so many columns take."""
    count, length = even_blocks(columns, _COLUMNS)
    return 4 * groups * count * length**2


def _rows(columns: int | None, samples: int) -> int:
    """Return at most how many rows of a sample to take; the first one tells how many columns."""
    return _ROWS if columns is None else min(_ROWS, -(-_ENOUGH * columns // samples))


@dataclass(eq=False)
class _Sums:
    """Sums over rows, which are gathered first."""

    held: list[np.ndarray] = field(default_factory=list)
    rows: int = 0
    total: np.ndarray | None = None
    products: list[np.ndarray] = field(default_factory=list)
    columns: int | None = None

    def add(self, rows: np.ndarray) -> None:
        self.columns = rows.shape[-1]
        self.held.append(rows.astype(np.float32, copy=False))
        if sum(each.nbytes for each in self.held) >= _HELD_BYTES:
            self._flush()

    def moments(self) -> Moments | None:
        """Return the moments of all rows; None if there are none, or if they are not finite."""
        self._flush()
        if self.total is None or not self.rows or not np.isfinite(self.total).all():
            return None
        products = tuple((each / self.rows).astype(np.float32) for each in self.products)
        if not all(np.isfinite(each).all() for each in products):
            return None
        return Moments(self.rows, self.total / self.rows, products)

    def _flush(self) -> None:
        if not self.held:
            return
        rows = self.held[0] if len(self.held) == 1 else np.concatenate(self.held, axis=1)
        self.held = []
        total = rows.sum(axis=1, dtype=np.float64)
        rows = np.ascontiguousarray(rows)
        turned = rows.transpose(0, 2, 1)
        if len(rows) > 1:
            # Of small matrices, the product with a copy is found in half of the time.
            turned = turned.copy(order="K")
        # What is not finite is left out at the end.
        with np.errstate(invalid="ignore", over="ignore"):
            parts = [turned[:, some] @ rows[:, :, some] for some in _parts(rows.shape[-1])]
        if self.total is None:
            self.total, self.products = total, parts
        else:
            self.total += total
            for sum_, each in zip(self.products, parts, strict=True):
                sum_ += each
        self.rows += rows.shape[1]


def _parts(columns: int) -> Sequence[slice]:
    count, length = even_blocks(columns, _COLUMNS)
    return [slice(at * length, min((at + 1) * length, columns)) for at in range(count)]
