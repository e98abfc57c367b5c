"""How far a model's outputs are from the float model's, for each sample."""

import numpy as np

from seqto.metrics.agreement import class_rows, usable
from seqto.types import Outputs

FLOOR = 1e-7
"""The least probability of a class: below it float32 is too coarse, and int8 rounds to 0."""

WORST = float(-np.log(FLOOR))
"""The divergence of an output that is not usable: as if what is certain were impossible."""

UNUSABLE = 100.0
"""The squared error of an output that is not finite, as if ten standard deviations off."""

_SUM_TOLERANCE = 1e-3


class Divergence:
    """The KL divergence of the classes' distribution from the float model's, in nats."""

    name = "kl"

    def __init__(self, reference: Outputs) -> None:
        self._reference = class_rows(reference)
        self._are_distributions = are_distributions(self._reference)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the divergence of each sample; the largest possible if an output is not usable."""
        rows = class_rows(outputs)
        return kl(self._reference[: len(rows)], rows, self._are_distributions)


def kl(reference: np.ndarray, rows: np.ndarray, distributions: bool) -> np.ndarray:
    """Return the KL divergence of each row of scores from the float model's, in nats.

    It is 0 where the float model's row is not usable, and `WORST` where only the other one is not.
    """
    wanted, found = (probabilities(each, distributions) for each in (reference, rows))
    divergence = np.maximum((wanted * (np.log(wanted) - np.log(found))).sum(axis=-1), 0.0)
    return np.where(usable(reference), np.where(usable(rows), divergence, WORST), 0.0)


def probabilities(rows: np.ndarray, distributions: bool) -> np.ndarray:
    """Return each row of scores as probabilities, all of them above 0.

    They are in float64, to be precise for small harms.
    """
    found = np.where(usable(rows)[..., None], np.asarray(rows, np.float64), 0.0)
    if not distributions:
        found = np.exp(found - found.max(axis=-1, keepdims=True))
        found /= found.sum(axis=-1, keepdims=True)
    possible = np.maximum(found, FLOOR)
    return np.asarray(possible / possible.sum(axis=-1, keepdims=True))


def are_distributions(rows: np.ndarray) -> bool:
    """Return whether the usable rows are probabilities: not negative, with a sum of 1."""
    rows = rows[usable(rows)]
    close = np.abs(rows.sum(axis=-1, dtype=np.float64) - 1) <= _SUM_TOLERANCE
    return bool(((rows >= 0).all(axis=-1) & close).all())
