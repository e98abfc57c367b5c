"""A server that goes away in the middle is told as such, not as a missing run."""

import socket
import threading
from collections.abc import Iterator

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


RUN = b'{"run": {"info": {"run_id": "' + b"0" * 32 + b'", "experiment_id": "1"}, "data": {}}}'


@pytest.fixture
def cut_off() -> Iterator[tuple[str, list[int]]]:
    """Return a server that ends in the middle of its first answer, and how often it was asked."""
    asked: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for whole in (False, True):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    asked.append(1)
                    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    head += f"Content-Length: {len(RUN)}\r\nConnection: close\r\n\r\n"
                    connection.sendall(head.encode() + (RUN if whole else RUN[:9]))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join(10)


def test_an_answer_that_was_cut_off_is_asked_for_again(cut_off: tuple[str, list[int]]) -> None:
    uri, asked = cut_off
    tracker = MlflowTracker(uri=uri)
    tracker._runs.store.__dict__["client"] = MlflowClient(uri)
    assert tracker._runs.get("0" * 32).info.run_id == "0" * 32
    assert len(asked) == 2
