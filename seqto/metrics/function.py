"""A user's own function as a metric."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqto.errors import ConfigError


@dataclass(frozen=True)
class FunctionMetric:
    """The loss that a function of the float model's and the candidate's outputs returns."""

    function: Callable[[np.ndarray, np.ndarray], float]

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the function's result; raise if it is not between 0 and 1."""
        loss = float(self.function(reference, outputs))
        if not 0 <= loss <= 1:
            raise ConfigError(
                f"metric {self.name} returned {loss}: a loss has to be a number from 0 (the same) "
                "to 1."
            )
        return loss
