"""Candidates built and measured in a row, which run what they have in common once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.errors import reason
from seqto.evaluate import Subject, measure, undone
from seqto.graph.segments import same_computation
from seqto.protocols import Device
from seqto.sharing import MEMORY_LIMIT, SharedRuns
from seqto.subject import Parts
from seqto.types import Candidate, Measurement, Model

SHARED_BYTES = MEMORY_LIMIT
"""Activations that are kept for the next candidates; 0: nothing is shared."""


@dataclass(frozen=True)
class Attempt:
    """What a candidate scored, or why it failed, and which layers it leaves in float in vain."""

    measurement: Measurement | None = None
    failure: str = ""
    undone: tuple[str, ...] = ()


def attempts(parts: Parts, subject: Subject, candidates: Sequence[Candidate]) -> Iterator[Attempt]:
    """Yield how each candidate fares, in their order."""
    built = [_built(parts, subject, candidate) for candidate in candidates]
    models = [each for each in built if isinstance(each, Model)]
    runs = (
        SharedRuns(models, subject.samples, subject.batch, parts.device, SHARED_BYTES)
        if SHARED_BYTES and len(models) > 1 and _shares(parts.device, subject)
        else None
    )
    for candidate, model in zip(candidates, built, strict=True):
        if isinstance(model, Attempt):
            yield model
            continue
        try:
            outputs = _known(model, subject)
            if outputs is None and runs is not None:
                outputs = runs.outputs(models.index(model))
            measurement = measure(model, subject, parts.device, parts.metric, outputs)
            layers = undone(candidate, model, parts.device)
        except Exception as error:
            yield _failed(error)
        else:
            yield Attempt(measurement, undone=tuple(layers))


def _known(model: Model, subject: Subject) -> np.ndarray | None:
    """Return the float model's outputs if it is this very one, with every layer left alone."""
    return subject.reference if same_computation(model, subject.model) else None


def _shares(device: Device, subject: Subject) -> bool:
    """Return whether it pays to run parts of models: not where models are too large to copy."""
    return getattr(device, "shares_prefixes", False) and not subject.model.is_large


def _built(parts: Parts, subject: Subject, candidate: Candidate) -> Model | Attempt:
    """Return the candidate's model, or why there can be none."""
    try:
        return parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Attempt:
    return Attempt(failure=reason(error))
