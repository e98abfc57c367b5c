"""MLflow stores that are read: nothing is made where none is."""

from pathlib import Path

import mlflow

from seqto.errors import TrackingError
from seqto.tracking.mlflow import MlflowTracker

_SQLITE = "sqlite:///"


def open_existing(uri: str | None) -> MlflowTracker:
    """Return the tracker of a store, by default MLflow's own; raise if there is no such file."""
    found = uri or str(mlflow.get_tracking_uri())
    # MLflow itself would make an empty store, and then miss the run.
    if found.startswith(_SQLITE) and not Path(found.removeprefix(_SQLITE)).exists():
        raise TrackingError(
            f"there is no MLflow store {found}: go to the folder that has it, or give "
            "--tracking-uri or MLFLOW_TRACKING_URI."
        )
    return MlflowTracker(uri=uri)
