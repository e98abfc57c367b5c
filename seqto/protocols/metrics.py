"""What accuracy loss means."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

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


@runtime_checkable
class JudgesAlone(Protocol):
    """Optional, for a metric that may say that a sample's loss depends on its own outputs alone.

    Candidates are then stopped as soon as the samples that ran have lost too much.
    """

    judges_alone: ClassVar[bool]
