"""Runs the command line in this process, in an empty folder."""

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from commands import Command, Result
from mlflow_store import migrated_store

from seqto.cli import main
from seqto.config import build

__all__ = ["cache", "migrated_store", "seqto"]


def pytest_configure() -> None:
    """Let Ctrl-C through, which tests send: a shell has what runs in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def seqto(
    cache: Path,
    migrated_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Command]:
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQTO_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SEQTO_DEBUG", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    mlflow.set_tracking_uri(None)

    def run(*arguments: str) -> Result:
        # What a process keeps for its jobs would outlive the folder here.
        monkeypatch.setattr(build, "_last", None)
        monkeypatch.setattr(sys, "argv", ["seqto", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    yield run
    mlflow.set_tracking_uri(None)
