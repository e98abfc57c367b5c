"""Candidates built and measured in a row, which run what they have in common once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seqto.evaluate import Subject, measure, undone
from seqto.subject import Parts
from seqto.types import Candidate, Measurement


@dataclass(frozen=True)
class Attempt:
    """What a candidate scored, or why it failed, and which layers it leaves in float in vain."""

    measurement: Measurement | None = None
    failure: str = ""
    undone: tuple[str, ...] = ()


def attempts(parts: Parts, subject: Subject, candidates: Sequence[Candidate]) -> Iterator[Attempt]:
    """Yield how each candidate fares, in their order."""
    for candidate in candidates:
        try:
            model = parts.quantizer.quantize(subject.model, subject.ranges, candidate)
            measurement = measure(model, subject, parts.device, parts.metric)
            layers = undone(candidate, model, parts.device)
        except Exception as error:
            yield Attempt(failure=f"{type(error).__name__}: {error}")
        else:
            yield Attempt(measurement, undone=tuple(layers))
