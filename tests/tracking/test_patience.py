"""Calls that are made again: an answer was cut off, or another process wrote the same."""

import socket
import threading
from collections.abc import Iterator

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from seqto.tracking.patience import PatientClient

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
    assert PatientClient(uri).get_run("0" * 32).info.run_id == "0" * 32
    assert len(asked) == 2


def test_what_creates_something_is_not_called_again(cut_off: tuple[str, list[int]]) -> None:
    uri, asked = cut_off
    with pytest.raises(MlflowException, match="Connection broken"):
        PatientClient(uri).create_run("1")
    assert len(asked) == 1
    PatientClient(uri).get_run("0" * 32)


REFUSALS = {
    "PostgreSQL": '(psycopg2.errors.UniqueViolation) violates unique constraint "dataset_pk"',
    "SQLite": "(sqlite3.IntegrityError) UNIQUE constraint failed: datasets.name",
    "MySQL": "(pymysql.err.IntegrityError) (1062, \"Duplicate entry '1-digits' for key\")",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_data_set_that_two_record_at_once_is_recorded(
    monkeypatch: pytest.MonkeyPatch, uri: str, refusal: str
) -> None:
    left = _refused_at_first(monkeypatch, refusal)
    PatientClient(uri).log_inputs("0" * 32, [])
    assert not left


def test_another_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    left = _refused_at_first(monkeypatch, "no such run")
    with pytest.raises(MlflowException, match="no such run"):
        PatientClient(uri).log_inputs("0" * 32, [])
    assert len(left) == 1


def _refused_at_first(monkeypatch: pytest.MonkeyPatch, why: str) -> list[str]:
    """Let MLflow refuse inputs twice; return what is left of that."""
    left = [why, why]

    def log_inputs(*_: object) -> None:
        if left:
            raise MlflowException(left.pop())

    monkeypatch.setattr(MlflowClient, "log_inputs", log_inputs)
    return left
