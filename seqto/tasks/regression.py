"""Numbers that count by their size: quantities, waveforms, maps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError
from seqto.metrics.distortion import NoiseLoss, NoiseToSignal, Scale, numbers
from seqto.metrics.entries import Entries
from seqto.metrics.intervals import mean_of
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import check_count
from seqto.types import Estimate, Outputs, Targets

_LEAST = 1e-12
"""The least noise that is told: 120 dB, about float32's precision."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Regression:
    """Any numbers, of one or several outputs: what counts is how large the error is.

    The error is a share of what the outputs say: `seqto.metrics.distortion` has the definition.
    """

    name: str = "regression"
    scale: Scale | None = None

    @property
    def metric(self) -> Metric:
        """Noise to signal, at most 1."""
        return NoiseLoss(scale=self.scale)

    def harm(self, reference: Outputs) -> Harm:
        """Return the noise to signal."""
        return NoiseToSignal(reference, self.scale)

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return the SQNR against targets, and the mean absolute error if there is one output.

        A target is an array as the output's, or for several outputs a mapping by their names.
        """
        wanted = _by_output(outputs, targets)
        noise = mean_of(NoiseToSignal(wanted, self.scale).per_sample(outputs))
        figures = {"sqnr_db": _in_db(noise)}
        if len(outputs) > 1:
            # Their units need not be the same.
            return figures
        (name,) = outputs
        return {"mae": mean_of(_absolute_errors(wanted[name], outputs[name])), **figures}


def _in_db(noise: Estimate) -> Estimate:
    """Return the signal to noise ratio, of which the ends of the interval change places."""
    ends = (noise.value, noise.high, noise.low)
    return Estimate(*(float(-10 * np.log10(max(each, _LEAST))) for each in ends))


def _absolute_errors(wanted: Entries, found: Entries) -> np.ndarray:
    """Return the mean error of each sample; ten times the largest target if it is not finite."""
    worst = 10 * max(float(np.abs(each).max(initial=0.0)) for each in wanted) or 1.0
    errors = [float(np.abs(two - one).mean()) for one, two in zip(wanted, found, strict=True)]
    return np.where(np.isfinite(errors), errors, worst)


def _by_output(outputs: Outputs, targets: Targets) -> dict[str, list[np.ndarray]]:
    """Return the targets of each output, in its shape."""
    check_count(targets, len(next(iter(outputs.values()))))
    return {
        name: [
            _target(name, target, entry, len(outputs))
            for target, entry in zip(targets, numbers(name, entries), strict=True)
        ]
        for name, entries in outputs.items()
    }


def _target(name: str, target: Any, entry: np.ndarray, outputs: int) -> np.ndarray:
    """Return a sample's target for one output, in the output's shape."""
    named = isinstance(target, Mapping)
    if (outputs > 1 or named) and not (named and name in target):
        raise DatasetError(
            f"a target has no values for output {name!r}: of a model with several outputs (here "
            f"{outputs}) it is a mapping with their names. Or choose one with "
            f"'model.outputs=[{name}]'."
        )
    values = np.asarray(target[name] if named else target)
    if values.dtype.kind not in "fiub" or values.size != np.size(entry):
        raise DatasetError(
            f"a target is {values.dtype} of the shape {list(values.shape)}, but output {name!r} "
            f"has the shape {list(np.shape(entry))} per sample: give numbers of that shape, or no "
            "targets."
        )
    if not np.isfinite(values).all():
        raise DatasetError("a target has values that are not finite: leave those samples out.")
    return np.asarray(values, np.float64).reshape(np.shape(entry))
