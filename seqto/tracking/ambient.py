"""MLflow as the Python program that calls seqto has set it up."""

import os

import mlflow
from mlflow.tracking import fluent

from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.stores import Store


def ambient_tracker() -> MlflowTracker:
    """Return a tracker for the active store, experiment and run of this process."""
    uri = str(mlflow.get_tracking_uri())
    active = mlflow.active_run()
    if active is not None:
        return MlflowTracker(uri=uri, parent=str(active.info.run_id))
    return MlflowTracker(uri=uri, experiment=_experiment(uri))


def _experiment(uri: str) -> str | None:
    """Return the name of the active experiment, or None."""
    # Set by mlflow.set_experiment(); MLflow has no public way to read it.
    held = getattr(fluent, "_active_experiment_id", None) or os.environ.get("MLFLOW_EXPERIMENT_ID")
    if held:
        return Store(uri).experiment_called(str(held))
    return os.environ.get("MLFLOW_EXPERIMENT_NAME")
