"""Arrays of integers to be coded."""

import numpy as np


def normal(size: int, step: float) -> np.ndarray:
    """Return normally distributed integers."""
    return np.rint(np.random.default_rng(7).standard_normal(size) / step).astype(np.int32)


def skewed(size: int) -> np.ndarray:
    """Return ones, one in a hundred, among zeros."""
    return (np.random.default_rng(7).random(size) < 0.01).astype(np.int32)


def spread(size: int) -> np.ndarray:
    """Return integers of which hardly two are the same."""
    return np.random.default_rng(7).integers(-(10**6), 10**6, size).astype(np.int32)


STREAMS = {
    "normal": normal(20_001, 0.5),
    "coarse": normal(20_002, 2),
    "fine": normal(20_003, 0.02),
    "few": normal(5, 0.5),
    "skewed": skewed(10_007),
    "constant": np.full(1001, 7, np.int32),
    "zeros": np.zeros(4096, np.int32),
    "single": np.array([-3], np.int32),
    "two": np.array([5, -5] * 50, np.int32),
    "spread": spread(3000),
    "outliers": np.append(normal(10_001, 0.5), [10**6, -(10**9)]).astype(np.int32),
    "limits": np.array([-128, 127] * 9, np.int32),
    "short limits": np.append(normal(999, 0.5), [-32768, 32767]).astype(np.int32),
    "uniform bytes": np.random.default_rng(1).integers(-100, 100, 70_000).astype(np.int32),
    "far from zero": normal(5000, 0.5) + 1_000_000,
}
