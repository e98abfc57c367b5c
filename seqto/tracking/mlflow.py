"""Studies and trials in MLflow: a parent run a study, a child run a candidate.

Only MlflowClient with explicit run ids is used: `mlflow run` exports an id that a bare
`start_run()` would adopt, and a finished run that is started again loses its end time. Every method
runs in one go: Ctrl-C in the middle of a transaction would leave a sqlite store locked.
"""

import contextlib
import functools
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import filelock
import mlflow
import mlflow.onnx
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models import Model as MlflowModel
from mlflow.models import infer_signature
from mlflow.tracking import MlflowClient
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.time import get_current_time_millis
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import TrackingError
from seqto.graph.sessions import open_session
from seqto.interrupts import in_one_go
from seqto.tracking.ui import experiment_tags, looks, run_page, study_pages, study_view
from seqto.types import (
    TABLES,
    Address,
    Arrays,
    Candidate,
    DataSplit,
    Front,
    Layer,
    LayerScore,
    Measurement,
    Model,
    Recommendation,
    StudyPlan,
    StudyRecord,
    Table,
    Trial,
    TrialState,
    content_key,
)
from seqto.workspace import Workspace

_BASELINE = "float_"
_EXCLUDED = "excluded_layers.json"
_SENSITIVITY = "sensitivity.json"
# MLflow cuts longer values, or refuses them if MLFLOW_TRUNCATE_LONG_VALUES is false.
_LONGEST_PARAM = 6000
_LONGEST_TAG = 8000
_LARGEST_EXAMPLE = 10_000
# MLflow's own tag of what a run uses a data set for.
_CONTEXT = "mlflow.data.context"

_NOTE = "mlflow.note.content"
# Ends with a comment, which nobody sees, that tells whether a person changed what is above it.
_END = "---\n*Your own notes: what is written below this line is kept.*\n\n[//]: # (seqto {})"

_log = logging.getLogger(__name__)

# By default MLflow tries for four minutes to reach a server that is not there.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}

_STATES = {
    "RUNNING": TrialState.RUNNING,
    "SCHEDULED": TrialState.RUNNING,
    "FINISHED": TrialState.COMPLETE,
    "FAILED": TrialState.FAILED,
    "KILLED": TrialState.KILLED,
}
_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.KILLED: "KILLED",
}


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class MlflowTracker:
    """MLflow at this tracking URI; without one, where MLflow itself looks by default.

    Without an experiment it is that of the run that `mlflow run` made, or else `seqto`.
    """

    uri: str | None = None
    experiment: str | None = None

    @in_one_go
    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING parent run."""
        found = self._last_study(plan.key) if resume else None
        if found is not None:
            self._kill_running(found.info.run_id)
            self._client.update_run(found.info.run_id, status="RUNNING")
            self._describe_study(found.info.run_id, plan, known=found.data.params)
            return str(found.info.run_id)
        tags = {**plan.tags, "seqto.kind": "study", "seqto.key": plan.key}
        study = self._create_run(plan.name, tags, parent=self._project_run)
        self._describe_study(study, plan)
        return study

    @in_one_go
    def start_trial(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Return the id of a RUNNING child run with the candidate's layers."""
        tags = {"seqto.kind": "candidate", "seqto.key": candidate.key, "seqto.pareto": "false"}
        run = self._create_run(name, tags, parent=study or self._project_run)
        excluded = candidate.excluded
        document = {
            "key": candidate.key,
            "excluded": list(excluded),
            "precisions": dict(candidate.precisions),
            "scheme": candidate.scheme,
        }
        self._client.log_dict(run, document, _EXCLUDED)
        # Last: a run that has an index is whole, whenever the process is killed.
        self._batch(run, params={"index": str(index), "excluded_count": str(len(excluded))})
        return run

    @in_one_go
    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record metrics and the model's sha256, then end the run as FINISHED."""
        session = {f"seqto.{name}": value for name, value in measurement.session.items()}
        tags = {"seqto.sha256": measurement.model_sha256, **session}
        if duplicate_of is not None:
            tags["seqto.duplicate_of"] = str(duplicate_of)
        self._batch(trial, metrics=measurement.metrics, tags=tags)
        self._client.set_terminated(trial, "FINISHED")

    @in_one_go
    def end_trial(self, trial: str, state: TrialState, reason: str) -> None:
        """Record the reason as a tag, then end the run."""
        self._batch(trial, tags={"seqto.failure": reason})
        self._client.set_terminated(trial, _STATUS[state])

    @in_one_go
    def trial(self, trial: str) -> Trial:
        """Return the trial of this run."""
        return self._trial(self._run(trial))

    @in_one_go
    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the first FINISHED child run with this sha256 that is no duplicate itself."""
        for run in self._children(study, f"and tags.`seqto.sha256` = '{model_sha256}'"):
            if run.info.status == "FINISHED" and "seqto.duplicate_of" not in run.data.tags:
                return self._trial(run)
        return None

    @in_one_go
    def log_analysis(
        self, study: str, baseline: Mapping[str, float], scores: Sequence[LayerScore]
    ) -> None:
        """Record `float_*` metrics and sensitivity.json."""
        self._batch(study, metrics={_BASELINE + name: value for name, value in baseline.items()})
        rows = [
            {
                "rank": rank,
                "layer": each.layer.name,
                "op_type": each.layer.op_type,
                "weight_bytes": each.layer.weight_bytes,
                **_group(each.layer),
                "score": each.score,
                "costs": dict(each.costs),
                "sizes": dict(each.sizes),
                **each.details,
            }
            for rank, each in enumerate(scores, 1)
        ]
        self._client.log_dict(study, {"layers": rows}, _SENSITIVITY)

    @in_one_go
    def log_figures(self, study: str, figures: Mapping[str, float]) -> None:
        """Record metrics of the parent run."""
        self._batch(study, metrics=figures)

    @in_one_go
    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Record tags of the parent run."""
        self._batch(study, tags=tags)

    @in_one_go
    def log_table(self, study: str, name: str, table: Table) -> None:
        """Record a JSON artifact of this name."""
        self._client.log_dict(study, {name: [dict(row) for row in table]}, f"{name}.json")

    @in_one_go
    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Record an artifact of the parent run."""
        self._client.log_dict(study, dict(document), name)

    @in_one_go
    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return the artifact, if it is there."""
        if not any(file.path == name for file in self._client.list_artifacts(study)):
            return None
        return dict(self._json(study, name))

    @in_one_go
    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return the last child run of each index; a FINISHED one before any other."""
        chosen: dict[int, Run] = {}
        for run in self._children(study):
            if "index" not in run.data.params:
                continue  # Its process was killed as it began.
            index = int(run.data.params["index"])
            # Runs come oldest first.
            if index not in chosen or chosen[index].info.status != "FINISHED":
                chosen[index] = run
        return tuple(self._trial(chosen[index]) for index in sorted(chosen))

    @in_one_go
    def read_study(self, study: str) -> StudyRecord:
        """Return the parent run, its sensitivity.json and its children."""
        run = self._run(study)
        tags = {name: value for name, value in run.data.tags.items() if name.startswith("seqto.")}
        return StudyRecord(
            id=study,
            key=tags.get("seqto.key", ""),
            tags=tags,
            baseline={
                name.removeprefix(_BASELINE): value
                for name, value in run.data.metrics.items()
                if name.startswith(_BASELINE)
            },
            scores=self._scores(study),
            trials=self.trials(study),
            tables=self._tables(study),
        )

    @in_one_go
    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Tag the members, untag those of an earlier front, log figures and files."""
        ranks = {trial.id: rank for rank, trial in enumerate(front.members, 1)}
        trials = {each.id: each for each in self.trials(study)}
        evaluated = [each for each in _data_of(self._run(study)) if _is_evaluation(each)]
        for run in self._children(study):
            if evaluated and not _data_of(run):
                self._client.log_inputs(run.info.run_id, evaluated)
            tags = _front_tags(front, run.info.run_id, ranks)
            if trial := trials.get(run.info.run_id):
                tags |= looks(trial, front, run.data.tags)
            if any(run.data.tags.get(name) != value for name, value in tags.items()):
                self._batch(run.info.run_id, tags=tags)
        metrics = {
            "hypervolume": front.hypervolume,
            "front_size": len(front.members),
            "candidates": len(trials),
            "failed": sum(each.state is TrialState.FAILED for each in trials.values()),
            "wall_seconds": (get_current_time_millis() - self._run(study).info.start_time) / 1000,
        }
        self._batch(study, metrics=metrics)
        if front.members:
            experiment = self._run(study).info.experiment_id
            self._client.set_experiment_tag(experiment, *study_view(study, front))
        self.log_files(study, files)

    @in_one_go
    def log_files(self, study: str, files: Sequence[Path]) -> None:
        """Record files of the study, in place of those of the same names."""
        for path in files:
            self._client.log_artifact(study, str(path))

    @in_one_go
    def log_note(self, study: str, text: str) -> None:
        """Put a text into the run's description, above what a person wrote there."""
        note = _note(text.strip(), self._run(study).data.tags.get(_NOTE, ""))
        if len(note) > _LONGEST_TAG:
            _log.warning(
                "The description of run %s is left as it is: with the notes in it there is no "
                "space for the front. Shorten them, then run the study again.",
                study,
            )
            return
        self._batch(study, tags={_NOTE: note})

    @in_one_go
    def check_finished(self, study: str) -> None:
        """Raise where the run is no study, or one that has no answer yet."""
        run = self._run(study)
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
        """Log the ONNX model to the child run, unless it is there already."""
        run = self._run(trial.id)
        if "seqto.model_uri" in run.data.tags:
            return
        session = {name: value for name, value in facts.items() if name.startswith("session.")}
        # Logging a model goes through MLflow's global URI.
        mlflow.set_tracking_uri(self._resolved_uri)
        with quiet():
            # Made here: MLflow itself would put it into whatever experiment is the active one.
            logged = self._client.create_logged_model(
                run.info.experiment_id, "model", source_run_id=trial.id, params=run.data.params
            )
            info = MlflowModel.log(
                artifact_path=None,
                name="model",
                model_id=logged.model_id,
                flavor=mlflow.onnx,
                run_id=trial.id,
                # A copy, as writing external data empties the model in memory.
                onnx_model=model.copy_proto() if model.is_large else model.proto,
                signature=_signature(model, example),
                input_example=_small(example),
                onnx_execution_providers=[facts.get("provider", "CPUExecutionProvider")],
                onnx_session_options={"extra_session_config": dict(session)} if session else None,
                metadata={"seqto.key": trial.candidate.key, **session},
                pip_requirements=_requirements(),
                save_as_external_data=model.is_large,
            )
        self._batch(trial.id, tags={"seqto.model_uri": info.model_uri})

    @in_one_go
    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Make a version of each recommended model, once, and move the aliases to them."""
        with _unless_it_exists():
            held = self._run(study).data.tags
            kinds = ("seqto.model", "seqto.device", "seqto.quantization")
            tags = {kind: held[kind] for kind in kinds if kind in held}
            self._client.create_registered_model(name, tags, _about(name))
        for each in recommended:
            number = self._version(name, study, each.trial)
            self._client.set_registered_model_alias(name, each.alias, number)

    @in_one_go
    def close_study(self, study: str, state: TrialState) -> None:
        """End the parent run, and child runs that nobody ends any more."""
        self._kill_running(study)
        self._client.set_terminated(study, _STATUS[state])

    @in_one_go
    def address(self, study: str) -> Address:
        """Return the study's page, and how to serve it where no server runs."""
        page = f"/{run_page(self._experiment_id, study)}"
        uri = self._resolved_uri
        if uri.startswith(("http://", "https://")):
            return Address(uri.rstrip("/") + page)
        # A store in this folder is as well served by its relative path, which is short.
        store = uri.replace(f"{Path.cwd()}/", "")
        command = shlex.join([_mlflow_command(), "ui", "--backend-store-uri", store])
        return Address(f"http://127.0.0.1:5000{page}", command)

    @in_one_go
    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return links that work on any server of this store."""
        return study_pages(self._run(study).info.experiment_id, study, front)

    @property
    def client(self) -> MlflowClient:
        """MLflow's own client of this store, for what else is kept there."""
        return self._client

    @property
    def store(self) -> str:
        """The URI of the store."""
        return self._resolved_uri

    @functools.cached_property
    def _resolved_uri(self) -> str:
        return self.uri or str(mlflow.get_tracking_uri())

    @functools.cached_property
    def _client(self) -> MlflowClient:
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        with self._first_contact():
            client = MlflowClient(self._resolved_uri)
            if client.get_experiment_by_name(self._experiment_name) is None:
                with _unless_it_exists():
                    client.create_experiment(self._experiment_name, tags=experiment_tags())
        return client

    @functools.cached_property
    def _project_run(self) -> str | None:
        """The run that `mlflow run` made for this process, if it is in this store."""
        run = os.environ.get("MLFLOW_RUN_ID")
        if run:
            with contextlib.suppress(MlflowException):
                return str(self._client.get_run(run).info.run_id)
        return None

    @property
    def _experiment_name(self) -> str:
        return self.experiment or "seqto"

    @functools.cached_property
    def _experiment_id(self) -> str:
        if not self.experiment and self._project_run:
            # MLflow shows runs as nested only within an experiment.
            return str(self._run(self._project_run).info.experiment_id)
        found = self._client.get_experiment_by_name(self._experiment_name)
        assert found is not None
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"MLflow's experiment {self._experiment_name!r} is deleted. Restore it with "
                f"`mlflow experiments restore -x {found.experiment_id}`, or choose another with "
                "tracking.experiment."
            )
        return str(found.experiment_id)

    @contextlib.contextmanager
    def _first_contact(self) -> Iterator[None]:
        """Let one process at a time make a store, and say soon where there can be none."""
        try:
            with self._store_lock(), _environment(_IMPATIENT):
                yield
        except Exception as error:  # MLflow's, SQLAlchemy's, a missing database driver's.
            raise TrackingError(
                f"MLflow at {self._resolved_uri} does not answer: {_first_line(error)}. "
                "Check tracking.uri or MLFLOW_TRACKING_URI."
            ) from error

    def _store_lock(self) -> contextlib.AbstractContextManager[object]:
        """Return a lock around making a store: two processes would migrate the same tables."""
        if not self._resolved_uri.startswith("sqlite:"):
            return contextlib.nullcontext()
        path = Workspace.default().lock(content_key(self._resolved_uri))
        path.parent.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(path)

    def _create_run(self, name: str, tags: Mapping[str, str], parent: str | None) -> str:
        nesting = {"mlflow.parentRunId": parent} if parent else {}
        cut = {key: value[:_LONGEST_TAG] for key, value in tags.items()}
        all_tags = resolve_tags({**cut, **nesting})
        run = self._client.create_run(self._experiment_id, tags=all_tags, run_name=name)
        return str(run.info.run_id)

    def _describe_study(
        self, study: str, plan: StudyPlan, known: Mapping[str, str] | None = None
    ) -> None:
        """Record the plan; MLflow takes no other value for a param that a run has."""
        missing = {name: each for name, each in plan.params.items() if name not in (known or {})}
        # Another command may resume a study: its models registered, its files elsewhere.
        self._batch(study, params=missing, tags=plan.tags)
        self._client.log_text(study, plan.config, "config.yaml")
        if plan.data:
            self._client.log_inputs(study, [_logged_data(each) for each in plan.data])

    def _kill_running(self, study: str) -> None:
        for run in self._children(study):
            if run.info.status == "RUNNING":
                self.end_trial(run.info.run_id, TrialState.KILLED, "its study was interrupted")

    def _run(self, run_id: str) -> Run:
        try:
            return self._client.get_run(run_id)
        except MlflowException as error:
            raise TrackingError(
                f"MLflow at {self._resolved_uri} has no run {run_id!r}. Copy the id from the run's "
                "page, and check tracking.uri or MLFLOW_TRACKING_URI."
            ) from error

    def _last_study(self, key: str) -> Run | None:
        found = self._client.search_runs(
            [self._experiment_id],
            f"tags.`seqto.kind` = 'study' and tags.`seqto.key` = '{key}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        return found[0] if found else None

    def _children(self, study: str, condition: str = "") -> Iterator[Run]:
        token = None
        while True:
            page = self._client.search_runs(
                [self._run(study).info.experiment_id],
                f"tags.`mlflow.parentRunId` = '{study}' and tags.`seqto.kind` = 'candidate' "
                + condition,
                order_by=["attributes.start_time ASC"],
                max_results=1000,
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _trial(self, run: Run) -> Trial:
        tags = run.data.tags
        if "index" not in run.data.params:
            raise TrackingError(
                f"run {run.info.run_id!r} is no candidate of seqto. Choose a run with the tag "
                "seqto.kind=candidate."
            )
        duplicate = tags.get("seqto.duplicate_of")
        return Trial(
            id=run.info.run_id,
            index=int(run.data.params["index"]),
            candidate=self._candidate(run.info.run_id),
            state=_STATES[run.info.status],
            metrics=dict(run.data.metrics),
            model_sha256=tags.get("seqto.sha256", ""),
            session={
                name.removeprefix("seqto."): value
                for name, value in tags.items()
                if name.startswith("seqto.session.")
            },
            duplicate_of=None if duplicate is None else int(duplicate),
            failure=tags.get("seqto.failure", ""),
        )

    def _scores(self, study: str) -> tuple[LayerScore, ...]:
        if not any(file.path == _SENSITIVITY for file in self._client.list_artifacts(study)):
            return ()
        return tuple(_score(row) for row in self._json(study, _SENSITIVITY)["layers"])

    def _tables(self, study: str) -> dict[str, Table]:
        held = {file.path for file in self._client.list_artifacts(study)}
        names = [name for name in TABLES if f"{name}.json" in held]
        return {name: self._json(study, f"{name}.json")[name] for name in names}

    def _candidate(self, run_id: str) -> Candidate:
        if run_id not in self._candidates:
            document = self._json(run_id, _EXCLUDED)
            scheme = document.get("scheme", "")
            self._candidates[run_id] = Candidate.of(document["precisions"], scheme)
        return self._candidates[run_id]

    @functools.cached_property
    def _candidates(self) -> dict[str, Candidate]:
        """What was read by run id: a download each, and it never changes."""
        return {}

    def _json(self, run_id: str, name: str) -> Any:
        # A folder for each call: MLflow downloads into a shared temporary folder otherwise.
        with tempfile.TemporaryDirectory(prefix="seqto-") as folder, quiet():
            try:
                path = self._client.download_artifacts(run_id, name, folder)
            except (MlflowException, OSError) as error:
                raise TrackingError(
                    f"run {run_id!r} has no {name}: it is no run of seqto, or it was cut short."
                ) from error
            return json.loads(Path(path).read_text())

    def _batch(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        now = get_current_time_millis()
        self._client.log_batch(
            run_id,
            params=[Param(k, v[:_LONGEST_PARAM]) for k, v in (params or {}).items()],
            metrics=[Metric(k, float(v), now, 0) for k, v in (metrics or {}).items()],
            tags=[RunTag(k, v[:_LONGEST_TAG]) for k, v in (tags or {}).items()],
        )

    def _version(self, name: str, study: str, trial: Trial) -> str:
        # Not by name: a filter cannot have a name with a quote in it.
        for each in self._client.search_model_versions(f"run_id = '{trial.id}'"):
            if each.name == name:
                return str(each.version)
        uri = self._run(trial.id).data.tags["seqto.model_uri"]
        data = self._run(study).data.tags.get("seqto.data", "")
        with quiet():
            made = self._client.create_model_version(
                name,
                uri,
                run_id=trial.id,
                model_id=uri.removeprefix("models:/"),
                tags={
                    "seqto.key": trial.candidate.key,
                    "seqto.study": study,
                    "seqto.sha256": trial.model_sha256,
                    "seqto.data": data,
                },
                description=_describe(trial),
            )
        return str(made.version)


def _front_tags(front: Front, run_id: str, ranks: Mapping[str, int]) -> dict[str, str]:
    aliases = [each.alias for each in front.recommended if each.trial.id == run_id]
    return {
        "seqto.pareto": "true" if run_id in ranks else "false",
        "seqto.rank": str(ranks.get(run_id, "")),
        "seqto.recommended": ",".join(aliases),
    }


def _logged_data(split: DataSplit) -> DatasetInput:
    path = Path(split.source)
    here = {"uri": str(path.resolve())} if path.exists() else {"tags": {"name": split.source}}
    data = Dataset(
        name=split.name,
        digest=split.digest,
        source_type="local" if path.exists() else "code",
        source=json.dumps(here),
        profile=json.dumps({"num_rows": split.samples}),
    )
    return DatasetInput(data, [InputTag(_CONTEXT, split.context)])


def _data_of(run: Run) -> list[DatasetInput]:
    return list(run.inputs.dataset_inputs) if run.inputs else []


def _is_evaluation(data: DatasetInput) -> bool:
    return any(tag.key == _CONTEXT and tag.value == "evaluation" for tag in data.tags)


def _group(layer: Layer) -> dict[str, str]:
    """Return what a search has to know of a layer that is not alone."""
    return {"group": layer.group, "weight": layer.weight} if layer.group else {}


def _score(row: dict[str, Any]) -> LayerScore:
    name, op_type, weight_bytes = (row.pop(key) for key in ("layer", "op_type", "weight_bytes"))
    group, weight = row.pop("group", ""), row.pop("weight", "")
    layer = Layer(name, op_type, weight_bytes, group=group, weight=weight)
    row.pop("rank")
    score, costs, sizes = row.pop("score"), row.pop("costs", {}), row.pop("sizes", {})
    return LayerScore(layer, score, row, costs, sizes)


def _small(example: Arrays) -> Any:
    """Return the example as MLflow takes it, or none where writing it as JSON takes seconds."""
    if sum(array.size for array in example.values()) > _LARGEST_EXAMPLE:
        return None
    return dict(example) if len(example) > 1 else next(iter(example.values()))


def _signature(model: Model, example: Arrays) -> Any:
    import onnxruntime

    session = open_session(model, onnxruntime.SessionOptions())
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, dict(example)), strict=True))
    return infer_signature(dict(example), outputs)


def _requirements() -> list[str]:
    # Given, so that MLflow does not spend seconds on finding out what the model imports.
    return [f"{name}=={version(name)}" for name in ("mlflow", "onnx", "onnxruntime", "numpy")]


def _describe(trial: Trial) -> str:
    """Say what a version offers, the figures first: lists show some twenty characters."""
    ratio, loss, latency = map(trial.metrics.get, ("size_ratio", "accuracy_loss", "latency_ms"))
    facts = [
        *([] if ratio is None else [f"{ratio:.0%} size"]),
        *([] if loss is None else [f"{loss:.2%} loss"]),
        *([] if latency is None else [f"{latency:.2f} ms"]),
        f"candidate {trial.index}",
        f"{len(trial.candidate.excluded)} of {len(trial.candidate.precisions)} layers in float32",
    ]
    return ", ".join(facts)


def _about(name: str) -> str:
    """Return the description of a registered model."""
    return (
        "Selectively quantized by seqto. Its aliases: **balanced** is nearest the ideal, "
        "**accurate** has the least loss, **small** the least size, **champion** was promoted.\n\n"
        f'    mlflow.onnx.load_model("models:/{name}@balanced")'
    )


def _note(text: str, held: str) -> str:
    """Return the text with what a person wrote: below its end, or into seqto's own part."""
    pattern = re.escape(_END).replace(r"\{\}", r"(\w*)")
    ours, written, theirs = [*re.split(pattern, held.replace("\r\n", "\n"), maxsplit=1), "", ""][:3]
    if content_key(ours.strip()) != written:
        theirs = f"{ours.strip()}\n\n{theirs.strip()}"
    return f"{text}\n\n{_END.format(content_key(text))}\n\n{theirs.strip()}".strip()


def _mlflow_command() -> str:
    """Return `mlflow`, or its path where the shell would not find this environment's."""
    beside = Path(sys.executable).parent / "mlflow"
    found = shutil.which("mlflow")
    if not beside.exists() or (found and Path(found).samefile(beside)):
        return "mlflow"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)


def quiet() -> contextlib.AbstractContextManager[None]:
    """Keep MLflow's progress bars off the terminal."""
    return _environment({"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"})


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables for a while; one that the user has set stays as it is."""
    names = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in names})
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


@contextlib.contextmanager
def _unless_it_exists() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
