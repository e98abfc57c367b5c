"""From one candidate's model to a measurement."""

import logging
from collections.abc import Mapping

import numpy as np

from seqto.errors import DeviceError
from seqto.figures import figure
from seqto.freeing import give_back
from seqto.graph.quantized import QUANTIZING, operations
from seqto.graph.unpacking import has_coded_weights
from seqto.measuring.float_share import FLOAT_SHARE, float_share
from seqto.measuring.loss import losses_of
from seqto.measuring.outputs import run_all
from seqto.measuring.peaks import peak
from seqto.measuring.stopping import Watch
from seqto.measuring.subject import Subject
from seqto.measuring.turns import quietest, time_after, time_beside
from seqto.metrics.intervals import mean_of
from seqto.protocols import Device, MeasuresLoading, Program
from seqto.types import INT8, INT16, Candidate, Estimate, Latency, Measurement, Model, Outputs

_log = logging.getLogger(__name__)


def measure(
    model: Model,
    subject: Subject,
    device: Device,
    outputs: Outputs | None = None,
    candidate: Candidate | None = None,
    watch: Watch | None = None,
) -> Measurement:
    """Measure this model on the device.

    If outputs are given, it runs for the first samples only, to check them; the float model's are
    taken as they are. How much is left in float is known only of a candidate, which a `watch` may
    stop.
    """
    program, loading = _loaded(model, device)
    try:
        if outputs is None or not _are_its_own(outputs, program, model, subject):
            outputs = run_all(
                program, model, subject.samples, subject.batch, subject.observed, watch=watch
            )
        with peak():
            timed = time_beside(program, model, subject.model, subject.example, device)
    finally:
        program.close()
    if timed.standard_ms is None:
        timed = time_after(timed.latency, subject.model, subject.example, device)
    _require_ranks(outputs, subject.reference)
    size = float(model.size)
    losses = losses_of(subject.metric, subject.reference, outputs)
    return Measurement(
        {
            **in_figures("accuracy_loss", mean_of(losses)),
            "divergence": float(subject.harm.per_sample(outputs).mean()),
            "size_bytes": size,
            "size_ratio": size / subject.baseline["size_bytes"],
            **_left_in_float(candidate, subject),
            **_against_targets(outputs, subject),
            **latency_figures(timed.latency),
            **loading,
        },
        model.digest,
        needed_session(model, device),
        tuple(losses.tolist()),
        float_ms=timed.standard_ms,
    )


def _are_its_own(outputs: Outputs, program: Program, model: Model, subject: Subject) -> bool:
    """Tell whether the model computes these outputs for the first samples, bit for bit."""
    if outputs is subject.reference:
        return True
    few = subject.samples.first(subject.samples.fixed_batch or subject.batch)
    first = run_all(program, model, few, subject.batch, subject.observed)
    same = all(
        np.array_equal(entry, outputs[name][at])
        for name, entries in first.items()
        for at, entry in enumerate(entries)
    )
    if not same:
        _log.info("A candidate runs as a whole: in parts it has other outputs.")
    return same


def float_latency(subject: Subject, device: Device) -> dict[str, float]:
    """Return how long the float model takes on the device, and what loading it takes."""
    program, loading = _loaded(subject.model, device)
    try:
        # All latencies of a study are shares of this one: one noisy run must not make it.
        latency = quietest(program, subject.example)
    finally:
        program.close()
    return {**latency_figures(latency), **loading}


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
    if operations(model).isdisjoint(QUANTIZING):
        return []
    kernels = device.kernels(model) if left else {}
    return [name for name in left if name in kernels and kernels[name].is_integer]


def in_figures(name: str, estimate: Estimate) -> dict[str, float]:
    """Return a figure with the ends of its interval, as they are recorded."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _loaded(model: Model, device: Device) -> tuple[Program, dict[str, float]]:
    """Return the model on the device, and the figures of loading it that the device can tell."""
    if not isinstance(device, MeasuresLoading):
        return device.load(model), {}
    with peak():
        program, loading = device.load_measured(model)
        if has_coded_weights(model.proto):
            # What they took to decode would stay with the process.
            give_back()
    if loading is None:
        return program, {}
    memory = {} if loading.peak_bytes is None else {"load_peak_bytes": loading.peak_bytes}
    return program, {"load_ms": loading.ms, **memory}


def _left_in_float(candidate: Candidate | None, subject: Subject) -> dict[str, float]:
    """Return the share of the weights in float; nothing where precisions are not known."""
    if candidate is None or not candidate.precisions:
        return {}
    return {FLOAT_SHARE: float_share(candidate, subject.layers)}


def _require_ranks(outputs: Outputs, reference: Outputs) -> None:
    """Raise if an output has another number of axes than the float model's.

    Their lengths may differ: a detector that finds more has more boxes.
    """
    for name, entries in reference.items():
        wanted, found = np.shape(entries[0]), np.shape(outputs[name][0])
        if len(wanted) != len(found):
            raise DeviceError(
                f"the model's output {name!r} has entries of shape {list(found)} where the float "
                f"model's have {list(wanted)}"
            )


def _against_targets(outputs: Outputs, subject: Subject) -> dict[str, float]:
    """Return how well the outputs meet the targets, and how much worse than the float model's."""
    if subject.samples.targets is None:
        return {}
    scores: Mapping[str, Estimate] = subject.task.scores(outputs, subject.samples.targets)
    telling = next(iter(scores))
    sign = 1 if figure(telling).less_is_better else -1
    drop = sign * (scores[telling].value - subject.baseline[telling])
    found = {"accuracy_drop": drop}
    for name, estimate in scores.items():
        found |= in_figures(name, estimate)
    return found


def latency_figures(latency: Latency) -> dict[str, float]:
    """Return a latency as figures of a candidate."""
    return {
        "latency_ms": latency.median_ms,
        "latency_p10_ms": latency.p10_ms,
        "latency_p90_ms": latency.p90_ms,
    }
