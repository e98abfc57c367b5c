"""The runs of candidates: opened in one call, ended in four, and found again.

A candidate costs what MLflow's calls cost, so that what can wait is written when a run ends: its
layers are in a tag from the start, and become an artifact together with its losses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import DatasetInput, Run

from seqto.tracking.packed import packed
from seqto.tracking.records import (
    EXCLUDED,
    INDEX,
    KINDS,
    LOSSES,
    candidate_document,
    candidate_tags,
    index_of,
    inputs_of,
    is_evaluation,
    losses_document,
    measurement_tags,
    state_tags,
)
from seqto.tracking.runs import INSTEAD, Runs
from seqto.tracking.ui import first_looks
from seqto.types import Candidate, Measurement, Trial, TrialState

_NOT_ON_FRONT = {"seqto.rank": "", "seqto.recommended": ""}
"""As most candidates of a study stay: only those of the front are written again at the end."""


@dataclass(frozen=True)
class _Started:
    """A candidate's run, and what its end needs to know of it."""

    run: Run
    study: str | None
    index: int
    candidate: Candidate

    @property
    def params(self) -> dict[str, str]:
        """What MLflow lists as the run's params."""
        return {"excluded_count": str(len(self.candidate.excluded))}

    @property
    def documents(self) -> dict[str, Mapping[str, Any]]:
        """The artifacts that every run has when it ends."""
        return {EXCLUDED: candidate_document(self.candidate)}


@dataclass
class ChildRuns:
    """The runs of candidates, written by this process and others."""

    runs: Runs
    _started: dict[str, _Started] = field(default_factory=dict)
    # The models that are measured, of studies that only this process records.
    _digests: dict[str, set[str]] = field(default_factory=dict)
    # The run that ended last, as MLflow holds it: it is asked for next.
    _ended: Run | None = None

    def record_alone(self, study: str) -> None:
        """Remember which models are measured: no other process measures this study's."""
        measured = filter(_is_first, self.runs.children(study))
        self._digests[study] = {run.data.tags.get("seqto.sha256", "") for run in measured}

    def start(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Create a RUNNING run with the candidate's layers, and return its id."""
        document = candidate_document(candidate)
        layers = packed(EXCLUDED, document)
        number = {INDEX: str(index)}
        shared = {**self._kinds(study), **_NOT_ON_FRONT} if study else {}
        own = {"seqto.kind": "candidate", "seqto.key": candidate.key, "seqto.pareto": "false"}
        tags = {**shared, **own, **candidate_tags(candidate), **layers}
        # Even if the process is killed, a run with an index is complete.
        run = self.runs.create(name, tags | number if layers else tags, parent=study)
        if not layers:
            self.runs.put(run, {EXCLUDED: document})
            self.runs.write(_id(run), tags=number)
        self._started[_id(run)] = _Started(run, study, index, candidate)
        return _id(run)

    def finish(self, run_id: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record a measurement, and end the run as FINISHED, unless another one was before it."""
        started = self._started.pop(run_id, None) or self._read(run_id)
        documents = started.documents
        tags = measurement_tags(measurement, duplicate_of)
        if measurement.losses:
            documents[LOSSES] = losses_document(measurement.losses)
            tags |= packed(LOSSES, documents[LOSSES])
        figures, held = measurement.metrics, started.run.data.tags
        if started.study is not None:
            tags |= first_looks(started.index, started.candidate, figures, held)
        self.runs.put(started.run, documents)
        self._log_data(started)
        self.runs.write(run_id, params=started.params, metrics=figures, tags=tags)
        self.runs.end(run_id, TrialState.COMPLETE)
        self._ended = None
        if started.study is not None:
            self._ended = self.runs.keep_one(started.study, started.candidate.key)
            self._digests.get(started.study, set()).add(measurement.model_sha256)

    def end(
        self,
        run_id: str,
        state: TrialState,
        reason: str,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Record why a candidate was not measured, and end its run."""
        started = self._started.pop(run_id, None) or self._read_whole(run_id)
        params = started.params if started else None
        tags = {"seqto.failure": reason, **state_tags(state)}
        self.runs.write(run_id, params=params, metrics=figures, tags=tags)
        self.runs.end(run_id, state)
        if started is not None:
            # Last, because runs have to be ended also where artifacts cannot be stored.
            self.runs.put(started.run, started.documents)

    def trial(self, run_id: str) -> Trial:
        """Return the trial of this run, or of the one that was finished before it."""
        ended, self._ended = self._ended, None
        run = ended if ended and _id(ended) == run_id else self.runs.get(run_id)
        instead = run.data.tags.get(INSTEAD)
        return self.runs.trial(self.runs.get(instead) if instead else run)

    def twin(self, study: str, digest: str) -> Trial | None:
        """Return the first FINISHED run with this digest that is not a duplicate."""
        if study in self._digests and digest not in self._digests[study]:
            return None
        for run in self.runs.children(study, f"and tags.`seqto.sha256` = '{digest}'"):
            if _is_first(run):
                return self.runs.trial(run)
        return None

    def lacking_data(self, study: str, run: Run) -> list[DatasetInput]:
        """Return the data sets that a study's candidates are measured on, if this run has none."""
        return [] if inputs_of(run) else self._evaluated(study)

    def _kinds(self, study: str) -> dict[str, str]:
        """Return the tags of a study that its candidates carry, too."""
        held = self.runs.study(study).data.tags
        return {name: held[name] for name in KINDS if name in held}

    def _evaluated(self, study: str) -> list[DatasetInput]:
        return [each for each in inputs_of(self.runs.study(study)) if is_evaluation(each)]

    def _log_data(self, started: _Started) -> None:
        data = self.lacking_data(started.study, started.run) if started.study else []
        if data:
            self.runs.client.log_inputs(_id(started.run), data)

    def _read(self, run_id: str) -> _Started:
        """Return a run that this process did not start, or that has ended before."""
        run = self.runs.get(run_id)
        trial = self.runs.trial(run)
        return _Started(run, self.runs.parent_of(run), trial.index, trial.candidate)

    def _read_whole(self, run_id: str) -> _Started | None:
        """Return the same; None if the process that started it was killed too early."""
        return None if index_of(self.runs.get(run_id)) is None else self._read(run_id)


def _is_first(run: Run) -> bool:
    return run.info.status == "FINISHED" and "seqto.duplicate_of" not in run.data.tags


def _id(run: Run) -> str:
    return str(run.info.run_id)
