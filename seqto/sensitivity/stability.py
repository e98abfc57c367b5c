"""Whether another draw of the samples would rank the layers alike."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from seqto.types import Arrays, LayerScore, Samples

T = TypeVar("T")

_LEAST = 3
"""Layers that make a ranking."""

_LAST = -1.0
"""Less than any score."""

FIRST_HALF, SECOND_HALF = "first_half", "second_half"
"""The details in which a sensitivity tells the score that each half of the samples gives alone."""


def in_halves(halves: tuple[T, T], samples: Samples, count: int) -> Iterator[tuple[T, Arrays]]:
    """Yield each of the first so many samples with the one of the two that its half belongs to.

    Where the model takes several at a time, these stay in one half: at least one batch is in each.
    """
    size = samples.fixed_batch or 1
    count = min(count if size == 1 else max(count, 2 * size), len(samples))
    batches = -(-count // size)
    for index, inputs in enumerate(samples.first_batches(count)):
        yield halves[index >= batches // 2], inputs


def stability(scores: Sequence[LayerScore]) -> float | None:
    """Return Spearman's rank correlation, from -1 to 1, of the rankings of the samples' halves.

    Layers that lack them were left early, and share the last place in both. None where too few
    have them, or where a half does not rank the layers.
    """
    rows = [(row.details.get(FIRST_HALF), row.details.get(SECOND_HALF)) for row in scores]
    if sum(None not in row for row in rows) < _LEAST:
        return None
    halves = (
        [_LAST if each is None else each for each in half] for half in zip(*rows, strict=True)
    )
    first, second = (_ranks(np.array(values)) for values in halves)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal values share the mean of theirs."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[index])
