"""How far a model's outputs are from the float model's, for each sample."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from seqto.errors import varying_output

FLOOR = 1e-7
"""The least probability of a class: below it float32 is too coarse, and int8 rounds to 0."""

UNUSABLE = 100.0
"""The squared error of an output that is not finite, as if ten standard deviations off."""

_SUM_TOLERANCE = 1e-3


class OutputHarm(Protocol):
    """A measure of the distance to the float model's outputs."""

    name: str

    def per_sample(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the harm to each of the first samples, always finite and never negative."""
        ...


def divergence(reference: np.ndarray, outputs: np.ndarray) -> float:
    """Return the mean harm over all samples."""
    return float(harm_to(list(reference)).per_sample(list(outputs)).mean())


def harm_to(reference: Sequence[np.ndarray]) -> OutputHarm:
    """Return the measure that suits these outputs of the float model, one per sample.

    For class scores, logits or probabilities, it is the KL divergence; for other outputs the mean
    squared error as a share of the outputs' variance.
    """
    if reference[0].squeeze().ndim == 1:
        return Divergence(reference)
    return SquaredError(reference)


class Divergence:
    """The KL divergence of the classes' distribution from the float model's, in nats."""

    name = "kl"

    def __init__(self, reference: Sequence[np.ndarray]) -> None:
        rows = _rows(reference)
        self._are_distributions = _are_distributions(rows)
        self._reference = self._probabilities(rows)
        self._known = _usable(rows)

    def per_sample(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the divergence of each sample; the largest possible if an output is not usable."""
        rows = _rows(outputs)
        reference, known = self._reference[: len(rows)], self._known[: len(rows)]
        ratio = np.log(reference) - np.log(self._probabilities(rows))
        divergence = np.maximum((reference * ratio).sum(axis=1), 0.0)
        worst = -np.log(FLOOR)
        return np.where(known, np.where(_usable(rows), divergence, worst), 0.0)

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return each row as probabilities, all of them above 0."""
        usable = np.where(_usable(rows)[:, None], rows, 0.0)
        if not self._are_distributions:
            usable = np.exp(usable - usable.max(axis=1, keepdims=True))
            usable /= usable.sum(axis=1, keepdims=True)
        possible = np.maximum(usable, FLOOR)
        return np.asarray(possible / possible.sum(axis=1, keepdims=True))


class SquaredError:
    """The mean squared error, as a share of the variance of the float model's outputs."""

    name = "mse"

    def __init__(self, reference: Sequence[np.ndarray]) -> None:
        self._reference = _rows(reference)
        self._known = np.isfinite(self._reference).all(axis=1)
        values = self._reference[self._known]
        self._variance = (float(values.var()) if values.size else 0.0) or 1.0

    def per_sample(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the error of each sample; a large one if an output is not finite."""
        rows = _rows(outputs)
        reference, known = self._reference[: len(rows)], self._known[: len(rows)]
        usable = np.isfinite(rows).all(axis=1)
        # Infinite values are not subtracted, because NumPy would warn.
        compared = (known & usable)[:, None]
        error = np.where(compared, rows, 0.0) - np.where(compared, reference, 0.0)
        found = np.square(error).mean(axis=1) / self._variance
        return np.where(known & ~usable, UNUSABLE, found)


def _rows(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return each sample's output as a row, in float64 to be precise for small harms."""
    for each in outputs:
        if each.shape != outputs[0].shape:
            raise varying_output([outputs[0].shape, each.shape])
    return np.stack([np.asarray(each, np.float64).ravel() for each in outputs])


def _usable(rows: np.ndarray) -> np.ndarray:
    """Return which rows of class scores are usable; minus infinity only rules out a class."""
    return np.asarray(np.isfinite(rows.max(axis=1)))


def _are_distributions(rows: np.ndarray) -> bool:
    close = np.abs(rows.sum(axis=1) - 1) <= _SUM_TOLERANCE
    return bool(((rows >= 0).all(axis=1) & close)[_usable(rows)].all())
