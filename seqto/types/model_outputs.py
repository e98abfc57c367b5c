"""What a model returned, and figures with their uncertainty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Outputs = Mapping[str, Sequence[np.ndarray] | np.ndarray]
"""A model's outputs by name, with one entry per sample and no batch axis.

If all entries of an output have the same shape, they are the rows of one array, `[samples, ...]`;
otherwise (the boxes of a detector) they are a tuple of arrays.
"""

Targets = Sequence[Any] | np.ndarray
"""What is right for each sample, such as its class; what an entry is depends on the task."""


@dataclass(frozen=True)
class Estimate:
    """A figure over all samples, with its 95 % interval."""

    value: float
    low: float
    high: float
