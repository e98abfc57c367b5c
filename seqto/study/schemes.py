"""Full quantizations compared, before any layer is excluded.

How weights are quantized, and which kernels run them, often matters more than which layers are
quantized. So the quantizer's schemes are measured on a few calibration samples, and only the best
become bases of the search.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceError, DeviceTransportError
from seqto.measuring.outputs import outputs_of, run_all
from seqto.measuring.subject import Subject
from seqto.measuring.turns import time_in_turns
from seqto.protocols import Device, Harm, SeveralSchemes
from seqto.types import INT8, RUINED, Candidate, Latency, Model, Outputs, Samples, Table

_log = logging.getLogger(__name__)

_EXACT = {"session.disable_quant_qdq": "1"}
"""With this option ONNX Runtime computes exactly what the file says, without integer kernels."""

_SMALLER, _FASTER = 0.99, 0.85
"""What counts as smaller and as faster: a difference that is more than noise."""

_AS_FAST = 1.05
"""Schemes that take up to this multiple of the least time, in turns, are as fast as the fastest."""


@dataclass(frozen=True)
class SchemeResult:
    """How full quantization by one scheme does on the samples.

    `exact_divergence` is the divergence of the same file computed exactly. What the device's
    kernels add to it is an artefact of the device, not a layer's fault.
    """

    scheme: str
    divergence: float
    exact_divergence: float
    size_bytes: int
    size_ratio: float
    latency_ms: float
    latency_p10_ms: float
    base: bool = False


def compare_schemes(
    quantizer: SeveralSchemes, subject: Subject, device: Device, timed: bool = False
) -> list[SchemeResult]:
    """Return the result of each scheme, the least harmful first, with the bases marked.

    Schemes that the device cannot run are left out. If it can run none, they are compared on this
    CPU: the search needs a base, and finds out later which layers the device cannot run. If latency
    is asked for (`timed`), schemes are timed in turns, and one of the fastest is a base.
    """
    results = _results(quantizer, subject, device)
    if results and timed:
        results = _timed_in_turns(results, quantizer, subject, device)
    results = results or _results(quantizer, subject, OnnxRuntimeDevice())
    results.sort(key=lambda each: each.divergence)
    bases = choose(results, quantizer.bases, timed)
    return [replace(each, base=each in bases) for each in results]


def _timed_in_turns(
    results: Sequence[SchemeResult], quantizer: SeveralSchemes, subject: Subject, device: Device
) -> list[SchemeResult]:
    """Return the results with latencies that can be compared."""
    full = _full(subject)
    models = [
        quantizer.schemes[each.scheme].quantize(subject.model, subject.ranges, full)
        for each in results
    ]
    latencies, _ = time_in_turns(models, subject.model, subject.example, device)
    return [
        replace(each, latency_ms=latency.median_ms, latency_p10_ms=latency.p10_ms)
        for each, latency in zip(results, latencies, strict=True)
    ]


def _full(subject: Subject) -> Candidate:
    return Candidate.of(dict.fromkeys(subject.layer_names, INT8))


def _results(quantizer: SeveralSchemes, subject: Subject, device: Device) -> list[SchemeResult]:
    samples = subject.calibration.first(quantizer.samples)

    def outputs(model: Model, where: Device) -> Outputs:
        return outputs_of(model, samples, subject.batch, where, subject.observed)

    harm = subject.task.harm(outputs(subject.model, device))
    exact: dict[str, float] = {}
    results = []
    full = _full(subject)
    for name, scheme in quantizer.schemes.items():
        model = scheme.quantize(subject.model, subject.ranges, full)
        try:
            divergence, latency = _measured(model, harm, samples, subject, device)
        except DeviceTransportError:
            raise
        except DeviceError as error:
            _log.warning("%s cannot run the scheme %s: %s", device.name, name, error)
            continue
        file = replace(model, session=_EXACT)
        # Schemes that differ only in their kernels have the same file.
        if file.digest not in exact:
            exact[file.digest] = _mean(harm, outputs(file, OnnxRuntimeDevice()))
        results.append(
            SchemeResult(
                scheme=name,
                divergence=divergence,
                exact_divergence=exact[file.digest],
                size_bytes=model.size,
                size_ratio=model.size / subject.baseline["size_bytes"],
                latency_ms=latency.median_ms,
                latency_p10_ms=latency.p10_ms,
            )
        )
    return results


def _measured(
    model: Model, harm: Harm, samples: Samples, subject: Subject, device: Device
) -> tuple[float, Latency]:
    """Return this model's mean harm on the samples, and its latency."""
    program = device.load(model)
    try:
        outputs = run_all(program, model, samples, subject.batch, subject.observed)
        return _mean(harm, outputs), program.time(subject.example)
    finally:
        program.close()


def _mean(harm: Harm, outputs: Outputs) -> float:
    return float(harm.per_sample(outputs).mean())


def choose(results: Sequence[SchemeResult], most: int, timed: bool = False) -> list[SchemeResult]:
    """Return the best `most` schemes by harm, size and latency, the least harmful first.

    Schemes that ruin the model, or whose advantage is within noise, are left out. If `timed`, one
    of the fastest is among them.
    """
    chosen: list[SchemeResult] = []
    for each in sorted(results, key=lambda result: result.divergence):
        ruined = chosen and each.divergence > RUINED
        if not ruined and all(_has_its_point(each, other) for other in chosen):
            chosen.append(each)
    chosen = chosen[:most]
    fast = _fast(results) if timed else []
    if fast and not any(each in fast for each in chosen):
        chosen = sorted([*chosen[: most - 1], fast[0]], key=lambda result: result.divergence)
    return chosen


def _fast(results: Sequence[SchemeResult]) -> list[SchemeResult]:
    """Return the schemes that are as fast as the fastest that works, the least harmful first."""
    working = [each for each in results if each.divergence <= RUINED]
    least = min((each.latency_ms for each in working), default=0.0)
    fast = [each for each in working if each.latency_ms <= _AS_FAST * least]
    return sorted(fast, key=lambda result: result.divergence)


def as_table(results: Sequence[SchemeResult]) -> Table:
    """Return the results as plain rows."""
    return [asdict(each) for each in results]


def _has_its_point(one: SchemeResult, other: SchemeResult) -> bool:
    """Return whether the first is clearly smaller or faster than the less harmful second."""
    return (
        one.size_bytes < _SMALLER * other.size_bytes
        # Other work on the machine only ever adds time, so the shortest times are most reliable.
        or one.latency_p10_ms < _FASTER * other.latency_p10_ms
    )
