"""MLflow's telemetry is off, in processes that are not tests: in those MLflow has it off anyway."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

WATCHER = """
import os, sys
def watch(event, arguments):
    far = event == "socket.connect" and arguments[1][0] != "127.0.0.1"
    if far or event == "socket.getaddrinfo":
        with open(os.environ["CALLS"], "a") as log:
            log.write(f"{event} {arguments[0 if event.endswith('info') else 1]!r}\\n")
sys.addaudithook(watch)
"""
"""Notes in a file whom any Python process below this one calls, also one that is spawned."""

OFF_AT_IMPORT = """
import seqto, mlflow
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None
"""
STOPPED_LATER = """
import mlflow
from mlflow.telemetry import get_telemetry_client
client = get_telemetry_client()
assert client is not None
import seqto.tracking.mlflow
assert get_telemetry_client() is None
client.activate()
for thread in client._consumer_threads:
    thread.join(5)
    assert not thread.is_alive()
"""
MARKS_OF_TESTS = ("PYTEST", "CI", "GITHUB", "GITLAB", "JENKINS", "TRAVIS", "MLFLOW_", "RUNBOT")


def surroundings(tmp_path: Path) -> dict[str, str]:
    """Return an environment that MLflow takes for that of a person."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(MARKS_OF_TESTS)}
    (tmp_path / "sitecustomize.py").write_text(WATCHER)
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    calls = {"CALLS": str(tmp_path / "calls"), "HOME": str(tmp_path)}
    # Else it would look through all fonts again, which takes seconds.
    calls["MPLCONFIGDIR"] = matplotlib.get_cachedir()
    return {**plain, **calls, "PYTHONPATH": path, "SEQTO_CACHE": str(tmp_path / "cache")}


def run(tmp_path: Path, *words: str) -> None:
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=surroundings(tmp_path),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("program", [OFF_AT_IMPORT, STOPPED_LATER], ids=["before", "after"])
def test_is_off_whether_mlflow_is_imported_before_or_after(tmp_path: Path, program: str) -> None:
    run(tmp_path, "-c", program)


@pytest.mark.slow
def test_no_study_calls_anybody(tmp_path: Path, migrated_store: Path) -> None:
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    words = ["search=ladder", "search.step=24", "sensitivity=local", "sensitivity.samples=2"]
    words += ["dataset.evaluation_size=50", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    run(tmp_path, "-m", "seqto", *words, "-m")
    assert not (tmp_path / "calls").exists(), (tmp_path / "calls").read_text()
