"""Where studies and their trials are recorded: one protocol for each part that calls it."""

from collections.abc import Mapping, Sequence
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
        """Return the id of a new RUNNING trial of this study, or of none."""
        ...

    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record what a trial measured, or an earlier one of the same model: it is COMPLETE."""
        ...

    def end_trial(self, trial: str, state: TrialState, reason: str) -> None:
        """Record that a trial FAILED or was KILLED, and why."""
        ...

    def trial(self, trial: str) -> Trial:
        """Return a trial by its id."""
        ...

    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the COMPLETE trial of this study that measured this very model, if any."""
        ...


class StudyReader(Protocol):
    """What is recorded of a study: read by `seqto.study`, `seqto.report` and the commands."""

    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return the last trial of each candidate, by index."""
        ...

    def read_study(self, study: str) -> StudyRecord:
        """Return all that is recorded of a study; no scores as long as it was not analysed."""
        ...

    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return a document that was recorded under this name, if any."""
        ...


class StudyLog(Protocol):
    """A study from its beginning to its end: written by `seqto.study` while it explores."""

    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING study: the last one of this key if resumed, else a new one.

        Trials that a resumed study left RUNNING are KILLED.
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

    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Record further tags of the study, in place of those of the same name."""
        ...

    def log_table(self, study: str, name: str, table: Table) -> None:
        """Record what was found on the way, under this name; a later one replaces it."""
        ...

    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Record a JSON document of the study, in place of one of the same name."""
        ...

    def close_study(self, study: str, state: TrialState) -> None:
        """End a study: COMPLETE only after its final step. Trials left RUNNING are KILLED."""
        ...


class FrontLog(Protocol):
    """The result of a study: written by its final step."""

    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Mark the front's members, and record its figures and these files with the study."""
        ...

    def log_note(self, study: str, text: str) -> None:
        """Put a text on the study's page, above what a person wrote there."""
        ...

    def log_model(
        self, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
    ) -> None:
        """Store a trial's model, once, with its signature and what its device said of itself."""
        ...

    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Register the recommended trials' models under this name, with their aliases."""
        ...


class Pages(Protocol):
    """Where people look: asked by the commands and the report."""

    def address(self, study: str) -> Address:
        """Return where a person looks at the study."""
        ...

    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return links for the study's page: `report`, `candidates`, `charts`, `compare`.

        The page of each member of the front is there under its id. What a tracker has no page
        for is missing.
        """
        ...


class Tracker(TrialLog, StudyReader, StudyLog, FrontLog, Pages, Protocol):
    """Where studies and their trials are recorded: all of the above.

    What is read back is what was written, also by another process. An unknown id is a
    TrackingError.
    """


@runtime_checkable
class Served(Protocol):
    """What a tracker offers besides that may be a server."""

    def check_answers(self) -> None:
        """Raise TrackingError where the server does not answer; make nothing there."""
        ...
