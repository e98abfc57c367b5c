"""Whether another draw of the samples would rank the layers alike."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from seqto.types import Arrays, LayerScore, Samples

T = TypeVar("T")

_LEAST = 3
"""The least number of layers that makes a ranking."""

_LAST = -1.0
"""A score below all others."""

FIRST_HALF, SECOND_HALF = "first_half", "second_half"
"""The details that hold the score from each half of the samples alone."""


def in_halves(halves: tuple[T, T], samples: Samples, count: int) -> Iterator[tuple[T, Arrays]]:
    """Yield the first `count` samples, each with the entry of `halves` for the half it is in.

    If the model takes several at a time, a batch stays in one half, and each half has at least one.
    """
    size = samples.fixed_batch or 1
    count = min(count if size == 1 else max(count, 2 * size), len(samples))
    batches = -(-count // size)
    for index, inputs in enumerate(samples.first_batches(count)):
        yield halves[index >= batches // 2], inputs


def stability(scores: Sequence[LayerScore]) -> float | None:
    """Return Spearman's rank correlation, from -1 to 1, of the rankings of the samples' halves.

    Layers without such scores were measured on fewer samples, and share the last place in both.
    None if too few layers have them, or if a half gives all layers the same rank.
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
