"""Where studies and their trials are recorded: one protocol per caller."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from seqto.types import (
    Address,
    Arrays,
    Candidate,
    Front,
    LayerScore,
    Measurement,
    Model,
    Recommendation,
    StudyPlan,
    StudyRecord,
    Table,
    Trial,
    TrialState,
)


class TrialLog(Protocol):
    """Single trials: written and read by `seqto.measuring`."""

    def start_trial(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Return the id of a new RUNNING trial of this study, or of no study."""
        ...

    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record a trial's figures, or those of an earlier trial of the same model, as COMPLETE."""
        ...

    def end_trial(
        self,
        trial: str,
        state: TrialState,
        reason: str,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Record that a trial FAILED, or was KILLED or STOPPED, why, and what is known of it."""
        ...

    def trial(self, trial: str) -> Trial:
        """Return a trial by its id."""
        ...

    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the study's COMPLETE trial that measured the same model, if any."""
        ...

    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return the document recorded under this name, if any."""
        ...


class StudyReader(Protocol):
    """The record of a study: read by `seqto.study`, `seqto.report` and the commands."""

    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return the last trial of each candidate, by index."""
        ...

    def read_study(self, study: str) -> StudyRecord:
        """Return everything recorded about a study; without scores until it is analysed."""
        ...

    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return the document recorded under this name, if any."""
        ...


class StudyLog(Protocol):
    """A study from its beginning to its end: written by `seqto.study` while it explores."""

    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING study: a new one, or to `resume` the last with this key.

        Trials that a resumed study left RUNNING become KILLED.
        """
        ...

    def log_analysis(
        self, study: str, baseline: Mapping[str, float], scores: Sequence[LayerScore]
    ) -> None:
        """Record the float model's figures and the layers' scores."""
        ...

    def log_figures(self, study: str, figures: Mapping[str, float]) -> None:
        """Record further figures of the study itself."""
        ...

    def log_times(
        self,
        study: str,
        baseline: Mapping[str, float],
        trials: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Record the float model's latency, and that of COMPLETE trials by id, in place of earlier.

        Their other figures stay as they are.
        """
        ...

    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Record further tags of the study; tags of the same name are replaced."""
        ...

    def log_table(self, study: str, name: str, table: Table) -> None:
        """Record an intermediate result under this name; a later one replaces it."""
        ...

    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Record a JSON document of the study; one of the same name is replaced."""
        ...

    def close_study(self, study: str, state: TrialState) -> None:
        """End a study, as COMPLETE only after its final step; RUNNING trials become KILLED."""
        ...


class FrontLog(Protocol):
    """The result of a study: written by its final step."""

    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Mark the front's members, and record its figures and these files with the study."""
        ...

    def log_note(self, study: str, text: str) -> None:
        """Put a text on the study's page, above what people wrote there."""
        ...

    def log_model(
        self, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
    ) -> None:
        """Store a trial's model once, with its signature and the facts about its device."""
        ...

    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Register the recommended trials' models under this name, with their aliases."""
        ...


class Pages(Protocol):
    """Where people look at studies: used by the commands and the report."""

    def address(self, study: str) -> Address:
        """Return where a person looks at the study."""
        ...

    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return links for the study's page: `report`, `candidates`, `charts`, `compare`.

        The page of each member of the front is included under its id. Pages that a tracker does
        not have are missing.
        """
        ...


class Tracker(TrialLog, StudyReader, StudyLog, FrontLog, Pages, Protocol):
    """Where studies and their trials are recorded: all of the above.

    Everything is read back as it was written, also by another process. An unknown id raises a
    TrackingError.
    """


@runtime_checkable
class Exclusive(Protocol):
    """Optional, for a tracker that several processes may use."""

    def alone(self, key: str) -> AbstractContextManager[Callable[[], None]]:
        """Hold the study with this key within the context; raise StudyError if another does.

        What is entered raises StudyError once another process took over.
        """
        ...


@runtime_checkable
class Shared(Protocol):
    """Optional, for a tracker that jobs on other machines may be given."""

    @property
    def store(self) -> str:
        """The address of what it records to."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other machines can reach it."""
        ...


@runtime_checkable
class Served(Protocol):
    """Optional, for a tracker that may be a server."""

    def check_answers(self) -> None:
        """Raise TrackingError if the server does not answer; create nothing there."""
        ...
