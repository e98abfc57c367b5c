"""Studies and trials in memory, for tests and for use as a library."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto.errors import TrackingError
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


@dataclasses.dataclass
class MemoryStudy:
    """The record of one study."""

    plan: StudyPlan
    state: TrialState = TrialState.RUNNING
    baseline: Mapping[str, float] = dataclasses.field(default_factory=dict)
    scores: tuple[LayerScore, ...] = ()
    trials: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    tables: dict[str, Table] = dataclasses.field(default_factory=dict)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    front: Front | None = None
    note: str = ""
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


class MemoryTracker:
    """Keeps everything in plain dictionaries, for the life of the process."""

    def __init__(self, keeps_models: bool = True) -> None:
        self._keeps_models = keeps_models
        self.studies: dict[str, MemoryStudy] = {}
        self.models: dict[str, bytes] = {}
        self.registered: dict[str, dict[str, str]] = {}
        self._trials: dict[str, Trial] = {}
        self._ids = (f"memory-{number}" for number in itertools.count())

    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING study."""
        if resume:
            for study, held in reversed(self.studies.items()):
                if held.plan.key == plan.key:
                    self._kill_running(held)
                    held.state = TrialState.RUNNING
                    return study
        study = next(self._ids)
        self.studies[study] = MemoryStudy(plan)
        return study

    def start_trial(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Return the id of a RUNNING trial."""
        trial = next(self._ids)
        self._trials[trial] = Trial(trial, index, candidate, TrialState.RUNNING)
        if study is not None:
            self._study(study).trials.append(trial)
        return trial

    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record what a trial measured."""
        self._trials[trial] = dataclasses.replace(
            self.trial(trial),
            state=TrialState.COMPLETE,
            metrics=dict(measurement.metrics),
            model_sha256=measurement.model_sha256,
            session=dict(measurement.session),
            losses=measurement.losses,
            duplicate_of=duplicate_of,
            machine=measurement.machine,
        )

    def end_trial(
        self,
        trial: str,
        state: TrialState,
        reason: str,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Record why a trial ended."""
        self._trials[trial] = dataclasses.replace(
            self.trial(trial), state=state, failure=reason, metrics=dict(figures or {})
        )

    def trial(self, trial: str) -> Trial:
        """Return a trial by its id."""
        if trial not in self._trials:
            raise TrackingError(f"there is no trial {trial!r}")
        return self._trials[trial]

    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the COMPLETE trial that measured this model, if any."""
        for trial in map(self.trial, self._study(study).trials):
            measured = trial.state is TrialState.COMPLETE and trial.duplicate_of is None
            if measured and trial.model_sha256 == model_sha256:
                return trial
        return None

    def log_analysis(
        self, study: str, baseline: Mapping[str, float], scores: Sequence[LayerScore]
    ) -> None:
        """Record the float model's figures and the layers' scores."""
        held = self._study(study)
        held.baseline, held.scores = dict(baseline), tuple(scores)

    def log_figures(self, study: str, figures: Mapping[str, float]) -> None:
        """Keep the figures."""
        self._study(study).figures |= figures

    def log_times(
        self,
        study: str,
        baseline: Mapping[str, float],
        trials: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Replace these figures."""
        held = self._study(study)
        held.baseline = {**held.baseline, **baseline}
        for name, figures in trials.items():
            trial = self.trial(name)
            self._trials[name] = dataclasses.replace(trial, metrics={**trial.metrics, **figures})

    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Keep the tags."""
        self._study(study).tags |= tags

    def log_table(self, study: str, name: str, table: Table) -> None:
        """Keep the table."""
        self._study(study).tables[name] = [dict(row) for row in table]

    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Keep the document as a file."""
        self._study(study).files[name] = json.dumps(document).encode()

    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return the file's content."""
        held = self._study(study).files.get(name)
        return None if held is None else dict(json.loads(held))

    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return one trial per index: the COMPLETE one if there is one, otherwise the last."""
        chosen: dict[int, Trial] = {}
        for trial in map(self.trial, self._study(study).trials):
            present = chosen.get(trial.index)
            if present is None or present.state is not TrialState.COMPLETE:
                chosen[trial.index] = trial
        return tuple(chosen[index] for index in sorted(chosen))

    def read_study(self, study: str) -> StudyRecord:
        """Return everything recorded about a study."""
        held = self._study(study)
        own = {"seqto.kind": "study", "seqto.key": held.plan.key}
        tags = {**held.plan.tags, **own, **held.tags}
        return StudyRecord(
            id=study,
            key=held.plan.key,
            tags=tags,
            baseline=held.baseline,
            scores=held.scores,
            trials=self.trials(study),
            tables=dict(held.tables),
        )

    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Keep the front and the files."""
        held = self._study(study)
        held.front = front
        held.files |= {path.name: path.read_bytes() for path in files}

    def log_note(self, study: str, text: str) -> None:
        """Keep the note."""
        self._study(study).note = text

    def log_model(
        self, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
    ) -> None:
        """Keep the model's bytes, unless models are not kept."""
        if self._keeps_models:
            self.models[trial.id] = b"".join(model.chunks())

    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Point the aliases at the trials."""
        aliases = self.registered.setdefault(name, {})
        aliases |= {each.alias: each.trial.id for each in recommended}

    def close_study(self, study: str, state: TrialState) -> None:
        """End a study and its running trials."""
        held = self._study(study)
        self._kill_running(held)
        held.state = state

    def address(self, study: str) -> Address:
        """Return the study's name in this process."""
        return Address(f"memory:{study}")

    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return nothing: there are no pages."""
        return {}

    def _study(self, study: str) -> MemoryStudy:
        if study not in self.studies:
            raise TrackingError(f"there is no study {study!r}")
        return self.studies[study]

    def _kill_running(self, held: MemoryStudy) -> None:
        for trial in held.trials:
            if self.trial(trial).state is TrialState.RUNNING:
                self.end_trial(trial, TrialState.KILLED, "its study was interrupted")
