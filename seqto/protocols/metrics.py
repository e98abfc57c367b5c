"""What accuracy loss means."""

from typing import Protocol

import numpy as np


class Metric(Protocol):
    """How far a candidate's outputs are from the float model's.

    Equal outputs have a loss of exactly 0.0, worse ones more. Trailing axes of length 1, which
    pooling leaves behind, do not matter. A metric runs no model, and changes neither array.
    """

    name: str

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the accuracy loss, a fraction in [0, 1], as a plain float."""
        ...
