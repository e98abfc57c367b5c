"""A server that goes away in the middle is told as such, not as a missing run."""

import pytest
from mlflow.tracking import MlflowClient
from ports import free_port

from seqto.errors import TrackingError
from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.versions import MlflowVersions


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> MlflowTracker:
    """Return the tracker of a server that answered once, and is gone."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MlflowTracker(uri=f"http://ann:Tr0ub4dor-and-3@127.0.0.1:{free_port()}")
    tracker._runs.store.__dict__["client"] = MlflowClient(tracker.store)
    return tracker


def test_server_that_left_is_told_from_a_run_that_is_missing(left: MlflowTracker) -> None:
    calls = (
        lambda: left.trial("0" * 32),
        lambda: left.log_figures("0" * 32, {"loss": 1.0}),
        MlflowVersions(left, "model").all,
    )
    for call in calls:
        with pytest.raises(TrackingError, match="no longer answers: .*refused.* goes on") as told:
            call()
        assert "Tr0ub4dor" not in str(told.value)
