"""Candidates built and measured one after another; what they have in common runs once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seqto.errors import MetricError, reason
from seqto.graph.segments import same_computation
from seqto.graph.unpacking import has_coded_weights
from seqto.measuring.evaluate import measure, undone
from seqto.measuring.prefixes import MEMORY_LIMIT, SharedRuns
from seqto.measuring.subject import Subject
from seqto.protocols import Device, Quantizer, SharesPrefixes
from seqto.types import Candidate, Measurement, Model, Outputs

SHARED_BYTES = MEMORY_LIMIT
"""How many bytes of activations to keep for the next candidates; 0 shares nothing."""


class Tools(Protocol):
    """What makes candidates and what runs them."""

    @property
    def quantizer(self) -> Quantizer:
        """Makes a candidate's model."""
        ...

    @property
    def device(self) -> Device:
        """Runs it."""
        ...


@dataclass(frozen=True)
class Attempt:
    """What a candidate scored, or why it failed.

    `undone` are the float layers that the device runs in integers anyway.
    """

    measurement: Measurement | None = None
    failure: str = ""
    undone: tuple[str, ...] = ()


def attempts(
    parts: Tools,
    subject: Subject,
    candidates: Sequence[Candidate],
    known: Mapping[str, Measurement] | None = None,
) -> Iterator[Attempt]:
    """Yield each candidate's attempt, in their order.

    `known` holds earlier measurements by the model's digest: no model is measured twice.
    """
    measured = dict(known or {})
    built = [_built(parts, subject, candidate) for candidate in candidates]
    # Coded weights would have to be decoded just to see what models have in common.
    models = [
        each for each in built if isinstance(each, Model) and not has_coded_weights(each.proto)
    ]
    runs = (
        SharedRuns(
            models, subject.samples, subject.batch, parts.device, subject.observed, SHARED_BYTES
        )
        if SHARED_BYTES and len(models) > 1 and _shares(parts.device, subject)
        else None
    )
    for candidate, model in zip(candidates, built, strict=True):
        if isinstance(model, Attempt):
            yield model
            continue
        try:
            if model.digest not in measured:
                outputs = _of_the_float_model(model, subject)
                if outputs is None and runs is not None and model in models:
                    outputs = runs.outputs(models.index(model))
                measurement = measure(model, subject, parts.device, outputs, candidate)
                measured[model.digest] = measurement
            layers = undone(candidate, model, parts.device)
        except MetricError:
            raise
        except Exception as error:
            yield _failed(error)
        else:
            yield Attempt(measured[model.digest], undone=tuple(layers))


def shares_prefixes(device: Device) -> bool:
    """Return whether running a model in parts on this device gives the same outputs."""
    return isinstance(device, SharesPrefixes) and device.shares_prefixes


def _of_the_float_model(model: Model, subject: Subject) -> Outputs | None:
    """Return the float model's outputs if this model computes the same, and None otherwise."""
    return subject.reference if same_computation(model, subject.model) else None


def _shares(device: Device, subject: Subject) -> bool:
    """Return whether to run models in parts; models that are too large to copy are not.

    Nor are those with several outputs: a second one may keep nodes from being fused.
    """
    alone = len(subject.model.proto.graph.output) == 1 and subject.observed.is_plain
    return alone and shares_prefixes(device) and not subject.model.is_large


def _built(parts: Tools, subject: Subject, candidate: Candidate) -> Model | Attempt:
    """Return the candidate's model, or why it cannot be built."""
    try:
        return parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Attempt:
    return Attempt(failure=reason(error))
