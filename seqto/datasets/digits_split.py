"""The fixed three-way split of scikit-learn's handwritten digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAMPLES = 1797
TRAINING = 897
CALIBRATION = 100


class DigitSplits(NamedTuple):
    """Indices into ``sklearn.datasets.load_digits()``; no index is in two of the arrays."""

    training: np.ndarray
    calibration: np.ndarray
    evaluation: np.ndarray


def split() -> DigitSplits:
    """Return the 897 training, 100 calibration and 800 evaluation indices."""
    # RandomState, not default_rng: NumPy guarantees that its stream never changes, and the
    # committed network must never be evaluated on its training samples.
    order = np.random.RandomState(0).permutation(SAMPLES)
    return DigitSplits(*np.split(order, [TRAINING, TRAINING + CALIBRATION]))
