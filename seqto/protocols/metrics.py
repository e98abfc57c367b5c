"""What accuracy loss means."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from seqto.types import Outputs


class Metric(Protocol):
    """How far a candidate's outputs are from the float model's.

    Equal outputs have a loss of exactly 0.0, worse ones more. A metric runs no model, and changes
    neither outputs.
    """

    name: str

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray | Sequence[float]:
        """Return the accuracy loss of each sample, a fraction in [0, 1]."""
        ...
