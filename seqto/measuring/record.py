"""Trials: opened, ended and recorded."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from seqto.figures import as_measured
from seqto.interrupts import in_one_go
from seqto.measuring.batch import Attempt
from seqto.measuring.provenance import FLOAT_TIMES, MACHINE, PROVENANCE
from seqto.protocols import TrialLog
from seqto.types import Candidate, Measurement, TrialState, trial_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """A candidate to be measured, and its number in the study."""

    index: int
    candidate: Candidate
    may_stop: bool = False
    """Whether it counts for nothing once it is certain not to be on the front."""


@dataclass(frozen=True)
class Yardstick:
    """What the latencies of a study are of, as far as it is known."""

    machine: str = ""
    """The kind of machine; latencies of another kind do not count."""
    float_ms: float | None = None
    """The float model's latency; those of candidates are shares of it."""


UNTIMED = Yardstick()
"""Of candidates without a study: their latencies are what was measured."""


def yardstick_of(log: TrialLog, study: str | None) -> Yardstick:
    """Return what the latencies of this study are of; nothing if there is no study."""
    if study is None:
        return UNTIMED
    recorded = log.read_document(study, PROVENANCE) or {}
    times = log.read_document(study, FLOAT_TIMES) or {}
    return Yardstick(str(recorded.get(MACHINE, "")), times.get("latency_ms"))


@dataclass
class Recorder:
    """Records the trials of one study; `study` is None for candidates without a study."""

    log: TrialLog
    study: str | None
    device: str
    """The name of the device that they are measured on."""
    machine: str = ""
    """The kind of machine that measures them."""
    yardstick: Yardstick = UNTIMED
    _open: list[str] = field(default_factory=list)

    def start(self, assignment: Assignment) -> str:
        """Open a trial with a telling name, and return its id."""
        name = trial_name(assignment.index, assignment.candidate)
        trial = self.log.start_trial(self.study, assignment.index, assignment.candidate, name)
        self._open.append(trial)
        return trial

    # In one go: a signal after a trial is finished, but while it counts as open, would kill it.
    @in_one_go
    def end(self, trial: str, assignment: Assignment, made: Attempt) -> None:
        """Record a candidate's attempt; a model measured before keeps its earlier figures."""
        measurement = made.measurement
        if made.stopped is not None:
            known = {name: as_measured(name, value) for name, value in made.stopped.figures.items()}
            self.log.end_trial(trial, TrialState.STOPPED, made.stopped.why, known)
        elif measurement is None:
            self.log.end_trial(trial, TrialState.FAILED, made.failure)
        else:
            self._notice(assignment, made)
            measurement = self._placed(measurement)
            twin = self.log.twin(self.study, measurement.model_sha256) if self.study else None
            if twin is not None:
                measurement = replace(measurement, metrics=twin.metrics, losses=twin.losses)
            first = twin is None or assignment.index < twin.index
            self.log.finish_trial(trial, measurement, None if first or not twin else twin.index)
            if twin is not None and first:
                # Ended later, but comes earlier: so the front is the same in whatever order.
                self.log.finish_trial(twin.id, measurement, assignment.index)
        self._open.remove(trial)

    def _placed(self, measurement: Measurement) -> Measurement:
        """Return the measurement as it is recorded: rounded, with its machine.

        Its latency is in units of the study's float model, which was timed at another moment; there
        is none if that is of another kind of machine.
        """
        machine, wanted = measurement.machine or self.machine, self.yardstick.machine
        metrics = measurement.timed_as(self.yardstick.float_ms).metrics
        if wanted and wanted != machine:
            metrics = {k: v for k, v in metrics.items() if not k.startswith("latency_")}
        rounded = {name: as_measured(name, value) for name, value in metrics.items()}
        return replace(measurement, metrics=rounded, machine=machine)

    @contextmanager
    def open_trials(self) -> Iterator[None]:
        """Record the trials that an interrupted block left open as KILLED."""
        try:
            yield
        except BaseException:
            while self._open:
                self.log.end_trial(self._open.pop(), TrialState.KILLED, "interrupted")
            raise

    def _notice(self, assignment: Assignment, made: Attempt) -> None:
        """Warn of float layers that the device runs in int8 anyway."""
        if made.undone:
            _log.warning(
                "%s runs %d layer(s) in integers that candidate %d leaves in float: %s.",
                *(self.device, len(made.undone), assignment.index, ", ".join(made.undone)),
            )
