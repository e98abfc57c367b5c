"""Trials: candidates with their state and their figures."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.types.candidates import Candidate


@dataclass(frozen=True)
class Measurement:
    """One candidate's figures, the digest of its model, and the session options it needs."""

    metrics: Mapping[str, float]
    model_sha256: str
    session: Mapping[str, str] = field(default_factory=dict)


class TrialState(enum.StrEnum):
    """The state of a trial; only COMPLETE trials can be on a front."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True)
class Trial:
    """One candidate of a study as the tracker holds it."""

    id: str
    index: int
    candidate: Candidate
    state: TrialState
    metrics: Mapping[str, float] = field(default_factory=dict)
    model_sha256: str = ""
    session: Mapping[str, str] = field(default_factory=dict)
    duplicate_of: int | None = None
    failure: str = ""


def trial_name(index: int, candidate: Candidate) -> str:
    """Name a trial within twelve characters, because some pages show no more."""
    kind = "mixed" if candidate.is_mixed else f"excl {len(candidate.excluded)}"
    return f"{index:03d} {kind}"
