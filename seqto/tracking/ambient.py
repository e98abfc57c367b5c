"""MLflow as it is set up in this process, by who calls seqto from Python."""

import os

import mlflow
from mlflow.tracking import MlflowClient, fluent

from seqto.tracking.mlflow import MlflowTracker


def ambient_tracker() -> MlflowTracker:
    """Return the tracker of the store, the experiment and the run that are active here."""
    uri = str(mlflow.get_tracking_uri())
    active = mlflow.active_run()
    if active is not None:
        return MlflowTracker(uri=uri, parent=str(active.info.run_id))
    return MlflowTracker(uri=uri, experiment=_experiment(uri))


def _experiment(uri: str) -> str | None:
    """Return the name of the experiment that was set, if one was."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    # What mlflow.set_experiment() leaves; MLflow has no public way to ask for it.
    held = getattr(fluent, "_active_experiment_id", None) or os.environ.get("MLFLOW_EXPERIMENT_ID")
    return str(MlflowClient(uri).get_experiment(held).name) if held else name
