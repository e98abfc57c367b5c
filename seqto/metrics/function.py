"""A user's own function as a metric."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.types import Outputs

Losses = np.ndarray | Sequence[float]


@dataclass(frozen=True)
class FunctionMetric:
    """The losses that a function of the float model's and the candidate's outputs returns."""

    function: Callable[[Outputs, Outputs], Losses]

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def losses(self, reference: Outputs, outputs: Outputs) -> Losses:
        """Return what the function returns: a loss in [0, 1] for each sample."""
        return self.function(reference, outputs)
