"""How embeddings turn, and whether their neighbours change."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError
from seqto.metrics.entries import Entries, misfit, only_output
from seqto.types import Outputs

Pooling = Literal["mean", "first"]

_TIE = 1e-6
"""Similarities that are no further apart are equal: float32 is no more precise."""

_AT_A_TIME = 512


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class CosineLoss:
    """One minus the cosine of a sample's embedding and the float model's."""

    name: str = "cosine"
    pooling: Pooling | None = None

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the loss of each sample; 1 from a right angle on."""
        wanted, found = (directions(each, self.pooling) for each in (reference, outputs))
        return np.asarray(np.minimum(turned(wanted, found), 1.0))


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class NeighbourLoss:
    """How often the nearest other sample changes, by cosine."""

    name: str = "neighbour"
    pooling: Pooling | None = None

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return 1 for each sample whose nearest one is another than with the float model."""
        wanted, found = (directions(each, self.pooling) for each in (reference, outputs))
        if len(wanted) < 3:
            raise DatasetError(
                f"task.loss=neighbour has nothing to choose from among {len(wanted)} samples: "
                "set dataset.evaluation_size to 3 or more, or task.loss=cosine."
            )
        pairs = zip(similarities(wanted), similarities(found), strict=True)
        return np.concatenate([_changed(_nearest(one), _nearest(two)) for one, two in pairs])


class Turn:
    """One minus the cosine of a sample's embedding and the float model's."""

    name = "cosine"

    def __init__(self, reference: Outputs, pooling: Pooling | None) -> None:
        self._pooling = pooling
        self._reference = directions(reference, pooling)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the harm to each sample, from 0 to 2."""
        found = directions(outputs, self._pooling)
        return turned(self._reference[: len(found)], found)


def directions(outputs: Outputs, pooling: Pooling | None) -> np.ndarray:
    """Return each sample's embedding with a length of 1; zeros stay zeros.

    The row of an embedding that is not finite is NaN.
    """
    vectors = _vectors(*only_output(outputs), pooling)
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    vectors = np.where(finite, vectors, 0.0)
    # First by the largest value: squares of large ones would overflow.
    for scale in (np.abs(vectors).max(axis=1), None):
        length = np.linalg.norm(vectors, axis=1) if scale is None else scale
        vectors = vectors / np.where(length > 0, length, 1.0)[:, None]
    return np.where(finite, vectors, np.nan)


def turned(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return one minus the cosine of each pair of directions; 0 where the float model's is NaN."""
    # Half the squared distance, which is exact for equal vectors and precise for close ones.
    angle = np.square(wanted - found).sum(axis=1) / 2
    is_zero = ~wanted.any(axis=1) | ~found.any(axis=1)
    angle = np.where(is_zero & (angle > 0), 1.0, angle)
    return np.where(_known(wanted), np.where(_known(found), angle, 2.0), 0.0)


def similarities(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Return the cosines of each sample with all others, some samples at a time.

    Minus infinity stands for the sample itself, and for what has no direction.
    """
    known = _known(rows)
    usable = np.where(known[:, None], rows, 0.0)
    for start in range(0, len(rows), _AT_A_TIME):
        own = np.arange(start, min(start + _AT_A_TIME, len(rows)))
        found = usable[own] @ usable.T
        found[:, ~known] = found[~known[own]] = -np.inf
        found[np.arange(len(own)), own] = -np.inf
        yield found


def _nearest(similar: np.ndarray) -> np.ndarray:
    """Return which samples are nearest, for each row: several if they are equally near."""
    best = similar.max(axis=1, keepdims=True)
    return np.asarray(np.isfinite(similar) & (similar >= best - _TIE))


def _changed(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return 1 for each row whose nearest samples are others, if it has any."""
    return np.asarray(wanted.any(axis=1) & ~(wanted & found).any(axis=1), np.float64)


def _known(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(rows[:, 0]))


def _vectors(name: str, entries: Entries, pooling: Pooling | None) -> np.ndarray:
    """Return one vector per sample."""
    squeezed = [_without_ones(each) for each in entries]
    if pooling is None and all(each.ndim == 1 for each in squeezed):
        found = squeezed
    elif all(each.ndim <= 2 for each in squeezed):
        found = [_pooled(name, entries, each, pooling) for each in entries]
    else:
        raise _no_embedding(name, entries)
    if len({each.shape for each in found}) != 1 or found[0].size < 2:
        raise _no_embedding(name, entries)
    return np.stack(found).astype(np.float64)


def _pooled(name: str, entries: Entries, entry: np.ndarray, pooling: Pooling | None) -> np.ndarray:
    """Return a sample's vector of its vectors per position, [positions, values]."""
    if pooling is None:
        raise misfit(
            name,
            entries,
            "task=embedding expects one vector per sample. If it has one per position, say "
            "task.pooling=mean or task.pooling=first; or choose another output with "
            "'model.outputs=[...]'",
        )
    rows = np.asarray(entry, np.float64)
    # Axes of length 1 go from the front, since a text may have a single token.
    while rows.ndim > 2 and rows.shape[0] == 1:
        rows = rows[0]
    while rows.ndim > 2 and rows.shape[-1] == 1:
        rows = rows[..., 0]
    if rows.ndim == 1:
        return rows
    if not len(rows):
        return np.full(rows.shape[1], np.nan)
    return np.asarray(rows.mean(axis=0) if pooling == "mean" else rows[0])


def _without_ones(entry: np.ndarray) -> np.ndarray:
    return np.reshape(entry, [size for size in np.shape(entry) if size != 1] or [1])


def _no_embedding(name: str, entries: Entries) -> Exception:
    return misfit(
        name,
        entries,
        "task=embedding expects a vector of the same length for every sample, or one per position "
        "with task.pooling=mean or first. Use another task, or choose another output with "
        "'model.outputs=[...]'",
    )
