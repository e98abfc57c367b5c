"""What lies in an MLflow store, as MLflow's own client sees it."""

import json
from pathlib import Path

import mlflow
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from seqto.tracking.stores import global_uri
from seqto.types import TrialState

STATES = {
    "RUNNING": TrialState.RUNNING,
    "FINISHED": TrialState.COMPLETE,
    "FAILED": TrialState.FAILED,
    "KILLED": TrialState.KILLED,
}


class MlflowInspector:
    """Looks into the store with MLflow's own client."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def study_state(self, study: str) -> TrialState:
        return STATES[self._client.get_run(study).info.status]

    def front(self, study: str) -> dict[str, tuple[int, tuple[str, ...]]]:
        tags = {run.info.run_id: run.data.tags for run in children(self._client, study)}
        aliases = {
            run: tuple(filter(None, each["seqto.recommended"].split(",")))
            for run, each in tags.items()
        }
        assert {each["seqto.pareto"] for each in tags.values()} <= {"true", "false"}
        assert not any(
            each["seqto.rank"] or aliases[run]
            for run, each in tags.items()
            if each["seqto.pareto"] == "false"
        )
        return {
            run: (int(each["seqto.rank"]), aliases[run])
            for run, each in tags.items()
            if each["seqto.pareto"] == "true"
        }

    def files(self, study: str) -> dict[str, bytes]:
        return {
            each.path: artifact(self._client, study, each.path)
            for each in self._client.list_artifacts(study)
        }

    def note(self, study: str) -> str:
        return str(self._client.get_run(study).data.tags["mlflow.note.content"])

    def models(self, trial: str) -> list[bytes]:
        run = self._client.get_run(trial)
        outputs = run.outputs.model_outputs if run.outputs else []
        with global_uri(self._client.tracking_uri):
            models = [mlflow.onnx.load_model(f"models:/{each.model_id}") for each in outputs]
        return [each.SerializeToString(deterministic=True) for each in models]

    def data(self, run: str) -> dict[str, tuple[str, str, int]]:
        used = {}
        for each in self._client.get_run(run).inputs.dataset_inputs:
            (context,) = (tag.value for tag in each.tags)
            samples = json.loads(each.dataset.profile)["num_rows"]
            assert context not in used, "recorded twice"
            used[context] = (each.dataset.name, each.dataset.digest, samples)
        return used

    def aliases(self, name: str) -> dict[str, str]:
        found = self._client.get_registered_model(name).aliases
        return {
            alias: self._client.get_model_version(name, version).run_id
            for alias, version in found.items()
        }


def children(client: MlflowClient, study: str) -> list[Run]:
    experiment = client.get_run(study).info.experiment_id
    return list(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{study}'"))


def own_tags(run: Run) -> dict[str, str]:
    return {name: value for name, value in run.data.tags.items() if name.startswith("seqto.")}


def artifact(client: MlflowClient, run: str, path: str) -> bytes:
    return Path(client.download_artifacts(run, path)).read_bytes()
