"""Trials: candidates with their state and their figures."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from seqto.types.candidates import Candidate

LATENCIES = ("latency_ms", "latency_p10_ms", "latency_p90_ms")
"""The figures of a latency: its median, and the 10th and 90th percentile."""


@dataclass(frozen=True)
class Measurement:
    """One candidate's figures, the digest of its model, and the session options it needs.

    `losses` are the accuracy losses of the samples, in their order.
    """

    metrics: Mapping[str, float]
    model_sha256: str
    session: Mapping[str, str] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    machine: str = ""
    """The kind of machine that measured it."""
    float_ms: float | None = None
    """The float model's latency in the same turns, if it had turns."""

    def timed_as(self, float_ms: float | None) -> "Measurement":
        """Return the same with latencies as they are where the float model takes so long."""
        if not self.float_ms or not float_ms:
            return self
        factor = float_ms / self.float_ms
        times = {name: factor * self.metrics[name] for name in LATENCIES if name in self.metrics}
        return replace(self, metrics={**self.metrics, **times}, float_ms=float_ms)


class TrialState(enum.StrEnum):
    """The state of a trial; only COMPLETE trials can be on a front.

    A STOPPED one was certain not to be on it before all samples had run.
    """

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    KILLED = "KILLED"
    STOPPED = "STOPPED"

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to measure."""
        return self in (TrialState.COMPLETE, TrialState.STOPPED)


@dataclass(frozen=True)
class Trial:
    """One candidate of a study as the tracker holds it.

    `losses` are the accuracy losses of the samples, in their order; trials of earlier versions of
    seqto have none. `machine` is the kind of machine that measured it.
    """

    id: str
    index: int
    candidate: Candidate
    state: TrialState
    metrics: Mapping[str, float] = field(default_factory=dict)
    model_sha256: str = ""
    session: Mapping[str, str] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    duplicate_of: int | None = None
    failure: str = ""
    machine: str = ""


def trial_name(index: int, candidate: Candidate) -> str:
    """Name a trial within twelve characters, because some pages show no more."""
    kind = "mixed" if candidate.is_mixed else f"excl {len(candidate.excluded)}"
    return f"{index:03d} {kind}"
