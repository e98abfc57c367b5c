"""One candidate to a measurement."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqto.errors import DeviceError
from seqto.metrics.agreement import accuracy
from seqto.metrics.divergence import divergence
from seqto.metrics.intervals import wilson
from seqto.protocols import Device, Metric, Program
from seqto.types import (
    INT8,
    INT16,
    Arrays,
    Candidate,
    Layer,
    Measurement,
    Model,
    Ranges,
    Samples,
)


@dataclass(frozen=True, eq=False)
class Subject:
    """What all candidates of a study share.

    `model` is the prepared float model as the quantizer takes it, `reference` its outputs for
    `samples`, `baseline` the original's own figures, and `batch` how many samples go at a time.
    """

    model: Model
    original_sha256: str
    layers: tuple[Layer, ...]
    calibration: Samples
    ranges: Ranges
    samples: Samples
    fingerprint: str
    reference: np.ndarray
    baseline: Mapping[str, float]
    batch: int

    @property
    def example(self) -> Arrays:
        """One sample, or as many as the model has to be fed with in a single inference."""
        return next(self.samples.batches(1))

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers, in the order of the graph."""
        return [layer.name for layer in self.layers]


def measure(
    model: Model,
    subject: Subject,
    device: Device,
    metric: Metric,
    outputs: np.ndarray | None = None,
) -> Measurement:
    """Return what this model scores on the device; its outputs, if they are known, are not run."""
    program = device.load(model)
    try:
        if outputs is None:
            outputs = run_all(program, subject.samples, subject.batch)
        latency = program.time(subject.example)
    finally:
        program.close()
    size = float(model.size)
    loss = metric.loss(subject.reference, outputs)
    low, high = wilson(loss, len(subject.samples))
    return Measurement(
        {
            "accuracy_loss": loss,
            "accuracy_loss_low": low,
            "accuracy_loss_high": high,
            "divergence": divergence(subject.reference, outputs),
            "size_bytes": size,
            "size_ratio": size / subject.baseline["size_bytes"],
            **_against_labels(outputs, subject),
            "latency_ms": latency.median_ms,
            "latency_p10_ms": latency.p10_ms,
            "latency_p90_ms": latency.p90_ms,
        },
        model.digest,
        needed_session(model, device),
    )


def needed_session(model: Model, device: Device) -> dict[str, str]:
    """Return the session options under which the model runs on the device."""
    facts = device.describe()
    return {
        **{name: fact for name, fact in facts.items() if name.startswith("session.")},
        **model.session,
    }


def undone(candidate: Candidate, model: Model, device: Device) -> list[str]:
    """Return the layers that this candidate leaves in float, and the device runs in integers."""
    left = [name for name, each in candidate.precisions if each not in (INT8, INT16)]
    kernels = device.kernels(model) if left else {}
    return [name for name in left if name in kernels and kernels[name].is_integer]


def outputs_of(model: Model, samples: Samples, batch: int, device: Device) -> np.ndarray:
    """Return the model's first output for all samples on the device."""
    program = device.load(model)
    try:
        return run_all(program, samples, batch)
    finally:
        program.close()


def run_all(program: Program, samples: Samples, batch: int) -> np.ndarray:
    """Return the first output for all samples, run in batches."""
    outputs = np.concatenate([program.run(inputs)[0] for inputs in samples.batches(batch)])
    if samples.fixed_batch:
        outputs = outputs[: len(samples)]
    if not np.isfinite(outputs).all():
        raise DeviceError("the model's output is not finite: it has NaN or infinite values")
    return outputs


def _against_labels(outputs: np.ndarray, subject: Subject) -> dict[str, float]:
    if subject.samples.labels is None:
        return {}
    score = accuracy(outputs, subject.samples.labels)
    return {"accuracy": score, "accuracy_drop": subject.baseline["accuracy"] - score}
