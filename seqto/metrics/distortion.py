"""Noise in any numbers, as a share of what they say."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.metrics.entries import Entries, misfit
from seqto.metrics.harm import UNUSABLE
from seqto.types import Outputs

Scale = Literal["values", "sample"]

FEW = 32
"""Up to so many values per sample are quantities of their own, such as a pose; more a signal."""

_SILENT = 1e-3
"""The least power of a sample, as a share of all samples' mean: silence is no reason to refuse."""

_ROUNDING = 1e-12
"""A variance below this share of the power is that of float32's rounding."""


class NoiseToSignal:
    """The squared error of each sample as a share of the signal's power, mean over outputs.

    The signal is what changes from sample to sample, since a constant says nothing: temperatures
    of 290 +- 5 K that are 5 K off are lost, though their power is 3,000 times that of the error.
    Of up to 32 values per sample each one is compared with its own variance over the samples
    (`values`), so that quantities of several units count alike. Larger outputs are a signal, such
    as a waveform or a map: a sample's error is compared with the power of that sample's deviation
    from the mean sample (`sample`), or with a thousandth of the mean power if it is more silent;
    of the mean sample only the share counts that is more than the chance of a few samples.
    What is the same for all samples is compared with its own power, and zeros with 1.
    """

    name = "noise"

    def __init__(self, reference: Outputs, scale: Scale | None = None) -> None:
        self._signals = {
            name: _Signal(numbers(name, entries), scale) for name, entries in reference.items()
        }

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the noise to signal of each sample, mean over outputs, at most `UNUSABLE`."""
        return np.asarray(np.mean(self._by_output(outputs), axis=0))

    def clipped(self, outputs: Outputs) -> np.ndarray:
        """Return the same, where no output counts for more than 1."""
        return np.asarray(np.mean(np.minimum(self._by_output(outputs), 1.0), axis=0))

    def _by_output(self, outputs: Outputs) -> list[np.ndarray]:
        return [
            signal.noise(numbers(name, outputs[name])) for name, signal in self._signals.items()
        ]


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class NoiseLoss:
    """The noise to signal of each sample, at most 1."""

    name: str = "noise"
    scale: Scale | None = None

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the loss of each sample."""
        return NoiseToSignal(reference, self.scale).clipped(outputs)


class _Signal:
    """One output of the float model, and the power that errors are compared with."""

    def __init__(self, entries: Entries, scale: Scale | None) -> None:
        self._entries = entries
        alike = len({np.shape(each) for each in entries}) == 1
        few = alike and np.size(entries[0]) <= FEW
        by_value = alike and (few if scale is None else scale == "values")
        self._power = _by_value(entries) if by_value else _by_sample(entries)

    def noise(self, entries: Entries) -> np.ndarray:
        pairs = zip(self._entries[: len(entries)], entries, self._power, strict=False)
        return np.array([_ratio(*each) for each in pairs])


def _ratio(wanted: np.ndarray, found: np.ndarray, power: np.ndarray) -> float:
    wanted, found = _precise(wanted), _precise(found)
    if not np.isfinite(wanted).all():
        return 0.0
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return UNUSABLE
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = _mean(np.square(found - wanted) / power)
    return min(ratio, UNUSABLE) if np.isfinite(ratio) else UNUSABLE


def _by_value(entries: Entries) -> np.ndarray:
    """Return each value's variance over the samples, for every sample."""
    known = np.stack([_precise(each) for each in _finite(entries)] or [entries[0] * 0.0])
    variance = known.var(axis=0, ddof=1) if len(known) > 1 else np.zeros(known.shape[1:])
    power = np.square(known).mean(axis=0)
    scale = np.where(variance > _ROUNDING * power, variance, power)
    return np.broadcast_to(np.where(scale > 0, scale, 1.0), (len(entries), *scale.shape))


def _by_sample(entries: Entries) -> np.ndarray:
    """Return the power of each sample's deviation from the mean sample."""
    known = _finite(entries)
    mean, count = _mean_sample(known)
    usual = _mean(_powers(known, mean)) * count / max(count - 1, 1)
    # The mean of a few waves is no wave that they share: only what exceeds chance counts.
    power = _mean(np.square(mean))
    shared = max(0.0, 1 - usual / count / power) if power > 0 else 0.0
    powers = _powers(known, shared * mean) * count / max(count - shared, 1)
    raw = _mean(_powers(known, 0.0))
    least = _SILENT * usual if usual > _ROUNDING * raw else raw
    found = np.zeros(len(entries))
    found[[np.isfinite(each).all() for each in entries]] = powers
    return np.maximum(found, least or 1.0)


def _powers(known: Entries, mean: np.ndarray | float) -> np.ndarray:
    return np.array([_mean(np.square(_precise(each) - mean)) for each in known])


def _mean_sample(known: Entries) -> tuple[np.ndarray | float, int]:
    """Return the mean of the samples, and of how many values each of its values is the mean.

    For a single sample, or samples of several lengths, it is the mean of all values.
    """
    if len(known) > 1 and len({each.shape for each in known}) == 1:
        # Added one by one: a copy of all in float64 would fill the memory.
        return np.asarray(sum(_precise(each) for each in known)) / len(known), len(known)
    count = sum(each.size for each in known)
    return sum(float(each.sum(dtype=np.float64)) for each in known) / max(count, 1), max(count, 1)


def _mean(values: np.ndarray | Sequence[float]) -> float:
    return float(np.mean(values, dtype=np.float64)) if np.size(values) else 0.0


def _finite(entries: Entries) -> list[np.ndarray]:
    return [each for each in entries if np.isfinite(each).all()]


def _precise(entry: np.ndarray) -> np.ndarray:
    """Return it in float64, which small errors and large squares need."""
    return np.asarray(entry, np.float64)


def numbers(name: str, entries: Entries) -> Entries:
    """Return an output; refuse one that is no numbers."""
    if np.asarray(entries[0]).dtype.kind not in "fiub":
        raise misfit(name, entries, "task=regression expects numbers, which these are not")
    return entries
