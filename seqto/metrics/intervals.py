"""The uncertainty of measured figures, and whether two of them can be told apart."""

import math
from collections.abc import Callable

import numpy as np

from seqto.types import Estimate

Z95 = 1.959963984540054
"""The standard normal's quantile for 95 %."""

RESAMPLES = 1000
_SEED = 0

Statistic = Callable[[np.ndarray], float]
"""A figure of the samples at these indices, some of which may be there several times."""


def wilson(fraction: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a fraction of `count` samples (Wilson score).

    Unlike the usual normal approximation, it also holds for few samples and near 0 and 1.
    """
    spread = Z95**2 / count
    centre = (fraction + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(fraction * (1 - fraction) / count + spread / (4 * count)) / (1 + spread)
    # Rounding must not put the fraction outside its own interval.
    return min(fraction, max(0.0, centre - half)), max(fraction, min(1.0, centre + half))


def mean_of(values: np.ndarray) -> Estimate:
    """Return the mean of the samples' values, with the interval that suits them."""
    mean = float(np.mean(values))
    if np.isin(values, (0, 1)).all():
        return Estimate(mean, *wilson(mean, len(values)))
    drawn = values[_resampled(len(values))].mean(axis=1)
    return _around(mean, drawn)


def bootstrap(statistic: Statistic, count: int) -> Estimate:
    """Return a figure of all samples, with the interval of its values for resampled ones.

    It suits corpus figures, such as a mean average precision, that are no mean over samples.
    """
    drawn = np.array([statistic(indices) for indices in _resampled(count)])
    return _around(float(statistic(np.arange(count))), drawn[np.isfinite(drawn)])


def can_be_told_apart(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether the mean losses of two candidates on the same samples differ, at 95 %.

    A paired test: what two candidates have in common, such as samples that are hard for both, does
    not count. Losses of 0 and 1 are tested exactly (McNemar), others by the spread of differences.
    """
    differences = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    changed = differences[differences != 0]
    if not len(changed):
        return False
    if np.isin(differences, (-1, 0, 1)).all():
        fewer = min(int((changed > 0).sum()), int((changed < 0).sum()))
        tail = sum(math.comb(len(changed), k) for k in range(fewer + 1)) / 2 ** len(changed)
        return bool(2 * tail < 0.05)
    # As many differences as samples: those that are equal are evidence too.
    drawn = differences[_resampled(len(differences))].mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return bool(low > 0 or high < 0)


def _resampled(count: int) -> np.ndarray:
    """Return the indices of samples drawn with replacement, the same each time."""
    return np.random.RandomState(_SEED).randint(0, count, (RESAMPLES, count))


def _around(value: float, drawn: np.ndarray) -> Estimate:
    if not len(drawn):
        return Estimate(value, value, value)
    low, high = (float(each) for each in np.percentile(drawn, (2.5, 97.5)))
    # Resampling must not put the value outside its own interval.
    return Estimate(value, min(value, low), max(value, high))
