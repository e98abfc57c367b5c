"""Weights as integers on an unbounded grid: each row has a step in proportion to its RMS.

Steps are stored as one byte per row: how many eighths of an octave they are below the largest one.
"""

import math
from dataclasses import dataclass

import numpy as np

EIGHTHS = (2 ** (-np.arange(8) / 8)).astype(np.float32)
"""The part of a step within an octave."""

OCTAVES = (2.0 ** -np.arange(32)).astype(np.float32)
"""The octaves of steps; rows that are still smaller count for nothing."""

STEPS = (OCTAVES[:, None] * EIGHTHS).reshape(-1)
"""All steps that a byte stands for, in units of the largest one."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A weight as integers, and the step of each row: `largest * STEPS[bytes]`.

    `steps` has the weight's rank, and size 1 along the axes that share a step.
    """

    integers: np.ndarray
    steps: np.ndarray
    largest: np.float32

    @property
    def values(self) -> np.ndarray:
        """The weight, exactly as it is decoded."""
        return np.asarray(self.integers.astype(np.float32) * self.scales)

    @property
    def scales(self) -> np.ndarray:
        """The steps as floats."""
        return np.asarray(STEPS[self.steps] * self.largest)


def on_grid(
    values: np.ndarray, reduced: tuple[int, ...], step: float, chosen: np.ndarray | None = None
) -> Grid:
    """Return the weight in multiples of `step` times the RMS along these axes.

    `chosen` are these multiples; by default they are rounded.
    """
    steps, largest = row_steps(values, reduced, step)
    if chosen is not None:
        return Grid(chosen.astype(np.int32), steps, largest)
    scales = STEPS[steps] * largest
    # The smallest steps may vanish in float32, and their rows with them.
    multiples = values.astype(np.float32) / np.where(scales > 0, scales, np.float32(np.inf))
    return Grid(np.rint(multiples).astype(np.int32), steps, largest)


def row_steps(
    values: np.ndarray, reduced: tuple[int, ...], step: float
) -> tuple[np.ndarray, np.float32]:
    """Return the steps of a weight's rows as bytes, and the largest step."""
    squares = np.square(values, dtype=np.float64).sum(axis=reduced, keepdims=True)
    count = max(math.prod(values.shape[axis] for axis in reduced), 1)
    wanted = step * np.sqrt(squares / count)
    # If all values are zero, any step is right.
    largest = np.float32(wanted.max(initial=0)) or np.float32(1)
    below = np.log2(np.maximum(wanted / largest, STEPS[-1]))
    return np.rint(-8 * below).clip(0, len(STEPS) - 1).astype(np.uint8), largest


def entropy(counts: np.ndarray) -> float:
    """Return the bits per value of values that occur so often."""
    total = counts.sum()
    seen = counts[counts > 0]
    return float(math.log2(total) - (seen * np.log2(seen)).sum() / total) if total else 0.0
