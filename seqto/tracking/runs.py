"""The runs of an MLflow store: creating, finding, writing and reading them.

Only MlflowClient with explicit run ids is used: `mlflow run` exports an id that a bare
`start_run()` would adopt, and a finished run that is started again loses its end time.
"""

import contextlib
import functools
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking import MlflowClient
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.time import get_current_time_millis

from seqto.errors import TrackingError
from seqto.secrets import masked
from seqto.tracking.packed import unpacked
from seqto.tracking.patience import is_outage
from seqto.tracking.records import (
    EXCLUDED,
    LOSSES,
    STATUS,
    candidate_of,
    index_of,
    losses_of,
    trial_of,
)
from seqto.tracking.stores import Store, quiet
from seqto.types import Candidate, Trial, TrialState

LONGEST_TAG = 8000
"""MLflow cuts longer values, or refuses them if MLFLOW_TRUNCATE_LONG_VALUES is false."""

_LONGEST_PARAM = 6000
_PARENT = "mlflow.parentRunId"

INSTEAD = "seqto.instead"
"""The tag that names the run which another process finished for the same candidate."""


@dataclass(frozen=True)
class Runs:
    """The runs of this store; new runs are created in its experiment."""

    store: Store
    # Candidates by run id: large ones need a download each, and they never change.
    _candidates: dict[str, Candidate] = field(default_factory=dict)
    # Studies by run id, as they were opened.
    _studies: dict[str, Run] = field(default_factory=dict)
    # The same of the losses of finished runs.
    _losses: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def client(self) -> MlflowClient:
        """MLflow's own client of the store."""
        return self.store.client

    def create(self, name: str, tags: Mapping[str, str], parent: str | None) -> Run:
        """Create a run nested in its parent, or in the run of `mlflow run`."""
        above = parent or self.store.project_run
        nesting = {_PARENT: above} if above else {}
        found = {**self._surroundings, **tags, **nesting}
        all_tags = {key: masked(value)[:LONGEST_TAG] for key, value in found.items()}
        return self.client.create_run(self._experiment_of(parent), tags=all_tags, run_name=name)

    @functools.cached_property
    def _surroundings(self) -> dict[str, str]:
        """MLflow's own tags, such as the address of the git repository: they take a while."""
        return dict(resolve_tags())

    def _experiment_of(self, study: str | None) -> str:
        """Return the experiment of a study: a job elsewhere may have another default."""
        if study is None:
            return self.store.experiment_id
        return str(self.study(study).info.experiment_id)

    def study(self, run_id: str) -> Run:
        """Return a study's run as it was opened: its candidates have much in common with it."""
        if run_id not in self._studies:
            self._studies[run_id] = self.get(run_id)
        return self._studies[run_id]

    def reopened(self, study: str) -> None:
        """Read this study again when it is asked for: it has changed."""
        self._studies.pop(study, None)

    def parent_of(self, run: Run) -> str | None:
        """Return the id of the run that this one is nested in, if any."""
        found = run.data.tags.get(_PARENT)
        return None if found is None else str(found)

    def nest(self, run_id: str) -> None:
        """Put a run below the one that all new runs are below now, if there is one."""
        if above := self.store.project_run:
            self.write(run_id, tags={_PARENT: above})

    def write(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Record values of a run; params and tags are masked, and cut to MLflow's limits."""
        now = get_current_time_millis()
        self.client.log_batch(
            run_id,
            params=[Param(k, masked(v)[:_LONGEST_PARAM]) for k, v in (params or {}).items()],
            metrics=[Metric(k, float(v), now, 0) for k, v in (metrics or {}).items()],
            tags=[RunTag(k, masked(v)[:LONGEST_TAG]) for k, v in (tags or {}).items()],
        )

    def put(self, run: Run, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Record JSON artifacts of a run, all in one call."""
        with tempfile.TemporaryDirectory(prefix="seqto-") as folder:
            for name, document in documents.items():
                Path(folder, name).write_text(json.dumps(document, indent=2), encoding="utf-8")
            # MLflow's client would read the run once more, to learn where its artifacts are.
            get_artifact_repository(run.info.artifact_uri, self.store.uri).log_artifacts(folder)

    def end(self, run_id: str, state: TrialState) -> None:
        """End a run in this state."""
        self.client.set_terminated(run_id, STATUS[state])

    def keep_one(self, study: str, key: str) -> Run | None:
        """Leave only one run of a study's candidate FINISHED, whoever finished another; return it.

        Each writer looks after it has written, and all decide alike: so one stays, whatever the
        order.
        """
        same = (
            f"tags.`{_PARENT}` = '{study}' and tags.`seqto.key` = '{key}' "
            "and attributes.status = 'FINISHED'"
        )
        found = list(self.client.search_runs([self._experiment_of(study)], same))
        if not found:
            return None
        first, *others = sorted(found, key=lambda each: (each.info.end_time, each.info.run_id))
        for each in others:
            why = "another process finished the same candidate before"
            tags = {"seqto.failure": why, INSTEAD: first.info.run_id, "seqto.pareto": "false"}
            self.write(each.info.run_id, tags=tags)
            self.client.update_run(each.info.run_id, status=STATUS[TrialState.KILLED])
        return first

    def get(self, run_id: str) -> Run:
        """Return the run of this id; raise TrackingError if the store has none."""
        try:
            return self.client.get_run(run_id)
        except MlflowException as error:
            if is_outage(error):
                raise
            raise TrackingError(
                f"MLflow at {self.store.uri} has no run {run_id!r}. Copy the id from the run's "
                "page, and check tracking.uri or MLFLOW_TRACKING_URI."
            ) from error

    def last_study(self, key: str) -> Run | None:
        """Return the newest study of this key in the experiment, if any."""
        found = self.client.search_runs(
            [self.store.experiment_id],
            f"tags.`seqto.kind` = 'study' and tags.`seqto.key` = '{key}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        return found[0] if found else None

    def children(self, study: str, condition: str = "") -> Iterator[Run]:
        """Yield the candidates of a study, the oldest first."""
        token = None
        while True:
            page = self.client.search_runs(
                [self._experiment_of(study)],
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

    def trial(self, run: Run) -> Trial:
        """Return the run as a trial; raise TrackingError if it is not a candidate."""
        run_id = run.info.run_id
        if index_of(run) is None:
            raise TrackingError(
                f"run {run_id!r} is no candidate of seqto. Choose a run with the tag "
                "seqto.kind=candidate."
            )
        if run_id not in self._candidates:
            held = unpacked(EXCLUDED, run.data.tags) or self.json(run_id, EXCLUDED)
            self._candidates[run_id] = candidate_of(held)
        return trial_of(run, self._candidates[run_id], self._losses_of(run))

    def _losses_of(self, run: Run) -> tuple[float, ...]:
        """Return the losses of the samples; trials that did not end well have none."""
        run_id = run.info.run_id
        if run.info.status != STATUS[TrialState.COMPLETE]:
            return ()
        if run_id not in self._losses:
            # Earlier versions of seqto wrote none.
            with contextlib.suppress(TrackingError):
                held = unpacked(LOSSES, run.data.tags) or self.json(run_id, LOSSES)
                self._losses[run_id] = losses_of(held)
        return self._losses.setdefault(run_id, ())

    def files(self, run_id: str) -> set[str]:
        """Return the names of the top-level artifacts."""
        return {file.path for file in self.client.list_artifacts(run_id)}

    def json(self, run_id: str, name: str) -> Any:
        """Return the content of a JSON artifact; raise TrackingError if the run has none."""
        # A folder per call, because MLflow would download into a shared temporary folder.
        with tempfile.TemporaryDirectory(prefix="seqto-") as folder, quiet():
            try:
                path = self.client.download_artifacts(run_id, name, folder)
            except (MlflowException, OSError) as error:
                if is_outage(error):
                    raise
                raise TrackingError(
                    f"run {run_id!r} has no {name}: it is not a run of seqto, or it was cut short."
                ) from error
            return json.loads(Path(path).read_text())
