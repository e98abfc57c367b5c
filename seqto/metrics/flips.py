"""Decisions between two classes."""

import dataclasses

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.metrics.agreement import judged, usable
from seqto.metrics.entries import misfit, only_output, stacked
from seqto.metrics.harm import kl, probabilities
from seqto.types import Outputs

_OUTSIDE = 0.02
"""How far quantized probabilities may lie outside [0, 1], and their sum from 1."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Flips:
    """How often the decision between two classes changes."""

    name: str = "flips"
    threshold: float | None = None

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return 1 for each sample that is decided otherwise, else 0."""
        wanted, found = columns(reference), columns(outputs)
        read = reading(wanted, self.threshold)
        changed = read.positive(wanted) != read.positive(found)
        return judged(read.rows(wanted), read.rows(found), changed)


class BinaryDivergence:
    """The KL divergence of the two classes' distribution from the float model's, in nats."""

    name = "kl"

    def __init__(self, reference: Outputs, threshold: float | None) -> None:
        values = columns(reference)
        self._read = reading(values, threshold)
        self._reference = self._read.rows(values)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the divergence of each sample; the largest possible if a value is not finite."""
        rows = self._read.rows(columns(outputs))
        return kl(self._reference[: len(rows)], rows, self._read.probabilities)


@dataclasses.dataclass(frozen=True)
class BinaryReading:
    """How values are read: as probabilities or logits, and from where on they mean yes.

    Of two classes, the threshold is the probability of the second one.
    """

    probabilities: bool
    threshold: float

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Return the scores of no and yes; both are NaN where they cannot be used."""
        if values.shape[1] == 2:
            return np.where(usable(values)[:, None], values, np.nan)
        # A logit counts from the threshold on, where a change matters most.
        no = 1 - values if self.probabilities else np.full_like(values, self.threshold)
        return np.where(np.isfinite(values), np.concatenate([no, values], axis=1), np.nan)

    def positive(self, values: np.ndarray) -> np.ndarray:
        """Return which samples mean yes."""
        if values.shape[1] == 1:
            return np.asarray(values[:, 0] > self.threshold)
        if self.threshold == 0.5:
            return np.asarray(values[:, 1] > values[:, 0])
        return np.asarray(probabilities(values, self.probabilities)[:, 1] > self.threshold)


def reading(values: np.ndarray, threshold: float | None) -> BinaryReading:
    """Return how such values are read."""
    known = values[np.isfinite(values).all(axis=1)]
    are_probabilities = bool(((known >= -_OUTSIDE) & (known <= 1 + _OUTSIDE)).all())
    if values.shape[1] == 2:
        are_probabilities &= bool((np.abs(known.sum(axis=1) - 1) <= _OUTSIDE).all())
    usual = 0.5 if are_probabilities or values.shape[1] == 2 else 0.0
    return BinaryReading(are_probabilities, usual if threshold is None else threshold)


def columns(outputs: Outputs) -> np.ndarray:
    """Return one value per sample, or two class scores."""
    name, entries = only_output(outputs)
    values = stacked(name, entries)
    if values.dtype.kind in "iu" and np.any((values < 0) | (values > 1)):
        raise misfit(
            name,
            entries,
            f"task=binary expects a yes or no, not whole numbers up to {values.max()}. Choose the "
            "scores with 'model.outputs=[...]', or export the model with them",
        )
    values = values.reshape(len(values), -1).astype(np.float64)
    if values.shape[1] > 2 or not values.shape[1]:
        raise misfit(
            name,
            entries,
            "task=binary expects one value or two class scores. Use task=classification, or choose "
            "another output with 'model.outputs=[...]'",
        )
    return values
