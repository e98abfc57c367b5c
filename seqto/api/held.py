"""A finished study, read back from the tracker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqto.errors import StudyError, TrackingError
from seqto.pareto.limits import ANSWER, constraint_of, front_within
from seqto.pareto.recommend import rule_of
from seqto.report.writing import REPORT
from seqto.study.device_limits import DOCUMENT
from seqto.types import Front, Model, StudyRecord, Trial

if TYPE_CHECKING:
    from seqto.tracking.mlflow import MlflowTracker


@dataclass(frozen=True)
class Held:
    """What the tracker holds about a finished study."""

    record: StudyRecord
    front: Front
    environment: Mapping[str, str]
    exclusions: Mapping[str, Any] | None


def held_study(tracker: "MlflowTracker", run: str) -> Held:
    """Return the study of this run; raise TrackingError if it has no answer."""
    tracker.check_finished(run)
    record = tracker.read_study(run)
    document = tracker.read_document(run, REPORT)
    if document is None:
        raise TrackingError(f"study {run!r} has no {REPORT}: its final step was cut short.")
    # Recommend as many candidates as the study did.
    count = len(document["recommended"].keys() - {ANSWER})
    rule = rule_of(record)
    rules = (constraint_of(record), count, rule)
    front = front_within(record.trials, document["objectives"], record.baseline, *rules)
    return Held(record, front, document["environment"], tracker.read_document(run, DOCUMENT))


@dataclass(frozen=True)
class Download:
    """Loads the models that MLflow stores of a study: those of the front's members."""

    uri: str
    stored: frozenset[str]

    def __call__(self, trial: Trial) -> Model:
        """Return the model of a trial; raise StudyError where it is not stored."""
        from seqto.tracking.registry import RegistryModel

        if trial.id not in self.stored:
            raise StudyError(
                f"MLflow stores only the models of front members, and candidate {trial.index} is "
                "none: build it with seqto.quantize(..., precisions=candidate.precisions, "
                "scheme=candidate.scheme)."
            )
        return RegistryModel(uri=f"runs:/{trial.id}/model", tracking_uri=self.uri).load()
