"""Noise in tensors: how much quantization changes their values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The least norm, as in ORT's qdq_loss_debug: it keeps the ratio of a perfect layer finite.
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass
class Noise:
    """Sums of squares over all samples: of a tensor's correct values, and of its errors."""

    signal: float = 0.0
    noise: float = 0.0
    count: int = 0

    def add(self, wanted: np.ndarray, found: np.ndarray) -> None:
        """Add one more sample."""
        self.signal += _power(wanted)
        self.noise += _power(wanted - found)
        self.count += wanted.size

    @property
    def decibels(self) -> float:
        """The signal-to-noise ratio: high is good."""
        ratio = max(np.sqrt(self.signal), _EPSILON) / max(np.sqrt(self.noise), _EPSILON)
        return float(20 * np.log10(ratio))

    @property
    def mean_square(self) -> float:
        """The mean squared error."""
        return self.noise / max(self.count, 1)

    @property
    def share(self) -> float:
        """The noise as a share of the signal."""
        return self.noise / self.signal if self.signal > 0 else 0.0


def together(parts: Sequence[Noise]) -> Noise:
    """Return the noise of all these samples."""
    return Noise(
        sum(each.signal for each in parts),
        sum(each.noise for each in parts),
        sum(each.count for each in parts),
    )


def _power(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())
