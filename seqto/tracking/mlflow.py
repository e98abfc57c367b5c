"""Studies and trials in MLflow: one parent run per study, one child run per candidate.

No method can be interrupted: Ctrl-C in the middle of a transaction would leave a sqlite store
locked.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.time import get_current_time_millis
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import TrackingError
from seqto.interrupts import put_off
from seqto.secrets import masked
from seqto.tracking import notes, stored_models
from seqto.tracking.child_runs import ChildRuns
from seqto.tracking.leases import Claims, held
from seqto.tracking.outages import in_one_go
from seqto.tracking.records import (
    SENSITIVITY,
    baseline_metrics,
    baseline_of,
    data_input,
    front_tags,
    index_of,
    scores_document,
    scores_of,
)
from seqto.tracking.runs import LONGEST_TAG, Runs
from seqto.tracking.stores import Store, check_exists, store_uri
from seqto.tracking.ui import looks, study_pages, study_views
from seqto.types import (
    REGISTERED,
    TABLES,
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

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class MlflowTracker:
    """MLflow at this tracking URI, or at MLflow's own default.

    Studies are nested in the run `parent`, or in that of `mlflow run`, if there is one. Without an
    experiment, it is that of this run, or `seqto`.
    """

    uri: str | None = None
    experiment: str | None = None
    parent: str | None = None

    def alone(self, key: str) -> AbstractContextManager[Callable[[], None]]:
        """Hold the lease of the study with this key, which is in the store."""
        with put_off():
            claims = Claims(self.client, self._runs.store.experiment_id, key)
        return held(claims)

    @in_one_go
    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING parent run."""
        found = self._runs.last_study(plan.key) if resume else None
        if found is not None:
            self._kill_running(found.info.run_id)
            self.client.update_run(found.info.run_id, status="RUNNING")
            self._describe_study(found.info.run_id, plan, known=found.data.params)
            self._runs.nest(found.info.run_id)
            self._candidates.record_alone(found.info.run_id)
            return str(found.info.run_id)
        tags = {**plan.tags, "seqto.kind": "study", "seqto.key": plan.key}
        study = str(self._runs.create(plan.name, tags, parent=None).info.run_id)
        self._describe_study(study, plan)
        self._candidates.record_alone(study)
        return study

    @in_one_go
    def start_trial(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Return the id of a RUNNING child run with the candidate's layers."""
        return self._candidates.start(study, index, candidate, name)

    @in_one_go
    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record metrics and the model's sha256, then end the run as FINISHED.

        If another process finished the same candidate meanwhile, the first run stays FINISHED.
        """
        self._candidates.finish(trial, measurement, duplicate_of)

    @in_one_go
    def end_trial(
        self,
        trial: str,
        state: TrialState,
        reason: str,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Record the reason as a tag, then end the run."""
        self._candidates.end(trial, state, reason, figures)

    @in_one_go
    def trial(self, trial: str) -> Trial:
        """Return the trial of this run, or of the one that was finished before it."""
        return self._candidates.trial(trial)

    @in_one_go
    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the first FINISHED child run with this sha256 that is not a duplicate."""
        return self._candidates.twin(study, model_sha256)

    @in_one_go
    def log_analysis(
        self, study: str, baseline: Mapping[str, float], scores: Sequence[LayerScore]
    ) -> None:
        """Record `float_*` metrics and sensitivity.json."""
        self._runs.write(study, metrics=baseline_metrics(baseline))
        self.client.log_dict(study, scores_document(scores), SENSITIVITY)

    @in_one_go
    def log_figures(self, study: str, figures: Mapping[str, float]) -> None:
        """Record metrics of the parent run."""
        self._runs.write(study, metrics=figures)

    @in_one_go
    def log_times(
        self,
        study: str,
        baseline: Mapping[str, float],
        trials: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Record the metrics again: the latest value of each counts."""
        for trial, figures in trials.items():
            self._runs.write(trial, metrics=figures)
        self._runs.write(study, metrics=baseline_metrics(baseline))

    @in_one_go
    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Record tags of the parent run."""
        self._runs.write(study, tags=tags)

    @in_one_go
    def log_table(self, study: str, name: str, table: Table) -> None:
        """Record the table as a JSON artifact."""
        self.client.log_dict(study, {name: [dict(row) for row in table]}, f"{name}.json")

    @in_one_go
    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Record an artifact of the parent run."""
        self.client.log_dict(study, dict(document), name)

    @in_one_go
    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return the artifact, if it is there."""
        if name not in self._runs.files(study):
            return None
        return dict(self._runs.json(study, name))

    @in_one_go
    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return one child run per index: the FINISHED one if there is one, otherwise the last."""
        return self._trials_of(self._runs.children(study))

    @in_one_go
    def read_study(self, study: str) -> StudyRecord:
        """Return the parent run, its sensitivity.json and its children."""
        run, held = self._runs.get(study), self._runs.files(study)
        held_tags = run.data.tags.items()
        # Earlier versions of seqto recorded passwords.
        tags = {name: masked(each) for name, each in held_tags if name.startswith("seqto.")}
        return StudyRecord(
            id=study,
            key=tags.get("seqto.key", ""),
            tags=tags,
            baseline=baseline_of(run.data.metrics),
            scores=scores_of(self._runs.json(study, SENSITIVITY)) if SENSITIVITY in held else (),
            trials=self.trials(study),
            tables={
                name: self._runs.json(study, f"{name}.json")[name]
                for name in TABLES
                if f"{name}.json" in held
            },
        )

    @in_one_go
    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Tag the members, untag those of earlier fronts, log figures and files."""
        runs = list(self._runs.children(study))
        trials = {each.id: each for each in self._trials_of(runs)}
        self._mark(study, runs, trials, front)
        parent = self._runs.get(study)
        metrics = {
            "hypervolume": front.hypervolume,
            "front_size": len(front.members),
            "candidates": len(trials),
            "failed": sum(each.state is TrialState.FAILED for each in trials.values()),
            "wall_seconds": (get_current_time_millis() - parent.info.start_time) / 1000,
        }
        self._runs.write(study, metrics=metrics)
        if front.members:
            for name, value in study_views(study, front).items():
                self._save_view(parent.info.experiment_id, name, value)
        self.log_files(study, files)

    @in_one_go
    def log_files(self, study: str, files: Sequence[Path]) -> None:
        """Record files of the study; files of the same name are replaced."""
        for path in files:
            self.client.log_artifact(study, str(path))

    @in_one_go
    def log_note(self, study: str, text: str) -> None:
        """Put a text into the run's description, above what a person wrote there."""
        held = self._runs.get(study).data.tags.get(notes.NOTE, "")
        note = notes.merged(text.strip(), held)
        if len(note) > LONGEST_TAG:
            _log.warning(
                "The description of run %s is left unchanged: its notes leave no space for the "
                "front. Shorten them, then run the study again.",
                study,
            )
            return
        self._runs.write(study, tags={notes.NOTE: note})

    @in_one_go
    def check_finished(self, study: str) -> None:
        """Raise if the run is not a study, or has no answer yet."""
        run = self._runs.get(study)
        tags, status = run.data.tags, run.info.status
        if tags.get("seqto.kind") != "study":
            parent = tags.get("mlflow.parentRunId")
            what = "a candidate" if tags.get("seqto.kind") == "candidate" else "no study of seqto"
            remedy = f"give its study, {parent}" if parent else "give one with seqto.kind=study"
            raise TrackingError(f"run {study!r} is {what}: {remedy}.")
        if status != "FINISHED":
            raise TrackingError(
                f"study {study!r} has no answer yet: it is {status}. "
                "The command that started it goes on where it stopped."
            )

    @in_one_go
    def log_model(
        self, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
    ) -> None:
        """Log the ONNX model to the child run, unless it is already there."""
        stored_models.log_model(self._runs, trial, model, example, facts)

    @in_one_go
    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Register each recommended model once, and move the aliases to their versions."""
        stored_models.register(self._runs, study, name, recommended)

    @in_one_go
    def close_study(self, study: str, state: TrialState) -> None:
        """End the parent run, and child runs that are still open."""
        self._kill_running(study)
        self._runs.end(study, state)

    @in_one_go
    def check_answers(self) -> None:
        """Raise if the store is a server that does not answer."""
        self._runs.store.check_answers()

    @in_one_go
    def address(self, study: str) -> Address:
        """Return the study's page, and the command that serves it if no server runs."""
        return self._runs.store.address(self._runs.get(study).info.experiment_id, study)

    @in_one_go
    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return links that work on any server of this store."""
        run = self._runs.get(study)
        registered = run.data.tags.get(REGISTERED, "")
        return study_pages(run.info.experiment_id, study, front, registered)

    @property
    def client(self) -> MlflowClient:
        """MLflow's own client of this store."""
        return self._runs.client

    @property
    def store(self) -> str:
        """The URI of the store."""
        return self._runs.store.uri

    @property
    def is_shared(self) -> bool:
        """Whether it is a server or a database, and no file of this machine."""
        return not self.store.startswith(("sqlite:", "file:", "/", "."))

    def _trials_of(self, runs: Iterable[Run]) -> tuple[Trial, ...]:
        chosen: dict[int, Run] = {}
        for run in runs:
            index = index_of(run)
            if index is None:
                continue  # Its process was killed at its start.
            # Runs come oldest first.
            if index not in chosen or chosen[index].info.status != "FINISHED":
                chosen[index] = run
        return tuple(self._runs.trial(chosen[index]) for index in sorted(chosen))

    def _mark(
        self, study: str, runs: Sequence[Run], trials: Mapping[str, Trial], front: Front
    ) -> None:
        """Write the tags that changed, and the data sets that earlier versions left out."""
        for run in runs:
            if data := self._candidates.lacking_data(study, run):
                self.client.log_inputs(run.info.run_id, data)
            tags = front_tags(front, run.info.run_id)
            if trial := trials.get(run.info.run_id):
                tags |= looks(trial, front, run.data.tags)
            held = run.data.tags
            changed = {name: value for name, value in tags.items() if held.get(name) != value}
            if changed:
                self._runs.write(run.info.run_id, tags=changed)

    @functools.cached_property
    def _runs(self) -> Runs:
        return Runs(Store(store_uri(self.uri), self.experiment, self.parent))

    @functools.cached_property
    def _candidates(self) -> ChildRuns:
        return ChildRuns(self._runs)

    def _describe_study(
        self, study: str, plan: StudyPlan, known: Mapping[str, str] | None = None
    ) -> None:
        """Record the plan; params that the run already has cannot be changed in MLflow."""
        missing = {name: each for name, each in plan.params.items() if name not in (known or {})}
        # The command that resumes a study may differ in tags and config.
        self._runs.write(study, params=missing, tags=plan.tags)
        self.client.log_text(study, plan.config, "config.yaml")
        if plan.data:
            self.client.log_inputs(study, [data_input(each) for each in plan.data])
        self._runs.reopened(study)

    def _save_view(self, experiment: str, name: str, value: str) -> None:
        """Save a view of the experiment's page, if this MLflow takes it: it documents none."""
        try:
            self.client.set_experiment_tag(experiment, name, value)
        except MlflowException as error:
            _log.info("MLflow does not take the view %s: %s", name, error)

    def _kill_running(self, study: str) -> None:
        for run in self._runs.children(study):
            if run.info.status == "RUNNING":
                self.end_trial(run.info.run_id, TrialState.KILLED, "its study was interrupted")


def open_existing(uri: str | None) -> MlflowTracker:
    """Return the tracker of a store, by default MLflow's own; raise if its file is missing."""
    check_exists(store_uri(uri))
    return MlflowTracker(uri=uri)
