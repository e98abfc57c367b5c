"""A user's own function as a metric."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FunctionMetric:
    """The loss that a function of the float model's and the candidate's outputs returns."""

    function: Callable[[np.ndarray, np.ndarray], float]

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return what the function returns."""
        return float(self.function(reference, outputs))
