"""From one candidate's model to a measurement."""

import numpy as np

from seqto.errors import varying_output
from seqto.measuring.loss import loss_of
from seqto.measuring.outputs import run_all
from seqto.measuring.subject import Subject
from seqto.metrics.agreement import accuracy
from seqto.metrics.harm import divergence
from seqto.metrics.intervals import wilson
from seqto.protocols import Device, Metric
from seqto.types import INT8, INT16, Candidate, Latency, Measurement, Model


def measure(
    model: Model,
    subject: Subject,
    device: Device,
    metric: Metric,
    outputs: np.ndarray | None = None,
) -> Measurement:
    """Measure this model on the device; it runs only if its outputs are not given."""
    program = device.load(model)
    try:
        if outputs is None:
            outputs = run_all(program, subject.samples, subject.batch)
        latency = program.time(subject.example)
    finally:
        program.close()
    if outputs.shape != subject.reference.shape:
        raise varying_output([subject.reference.shape, outputs.shape])
    size = float(model.size)
    loss = loss_of(metric, subject.reference, outputs)
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
            **_times(latency),
        },
        model.digest,
        needed_session(model, device),
    )


def float_latency(subject: Subject, device: Device) -> dict[str, float]:
    """Return how long the float model takes on the device."""
    program = device.load(subject.model)
    try:
        return _times(program.time(subject.example))
    finally:
        program.close()


def needed_session(model: Model, device: Device) -> dict[str, str]:
    """Return the session options that the model needs on the device."""
    facts = device.describe()
    return {
        **{name: fact for name, fact in facts.items() if name.startswith("session.")},
        **model.session,
    }


def undone(candidate: Candidate, model: Model, device: Device) -> list[str]:
    """Return the candidate's float layers that the device runs in integers anyway."""
    left = [name for name, each in candidate.precisions if each not in (INT8, INT16)]
    kernels = device.kernels(model) if left else {}
    return [name for name in left if name in kernels and kernels[name].is_integer]


def _against_labels(outputs: np.ndarray, subject: Subject) -> dict[str, float]:
    if subject.samples.targets is None:
        return {}
    score = accuracy(outputs, np.asarray(subject.samples.targets))
    return {"accuracy": score, "accuracy_drop": subject.baseline["accuracy"] - score}


def _times(latency: Latency) -> dict[str, float]:
    return {
        "latency_ms": latency.median_ms,
        "latency_p10_ms": latency.p10_ms,
        "latency_p90_ms": latency.p90_ms,
    }
