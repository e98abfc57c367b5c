"""A sqlite store that the tests of a module share, and a tracker of it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient
from suite_trackers import PLAN, Desk

from seqto.tracking.mlflow import MlflowTracker


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    migrated_store: Path,
) -> Path:
    """Return a folder with an empty store, which the tests of this module share."""
    folder = tmp_path_factory.mktemp("with spaces")
    shutil.copy(migrated_store, folder / "shared store.db")
    return folder


@pytest.fixture
def no_mlflow_around(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> Iterator[None]:
    """Begin without what MLflow reads from its surroundings, and leave nothing there."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "cache"))
    # Where MLflow puts the artifacts of a sqlite store.
    monkeypatch.chdir(folder)
    mlflow.set_tracking_uri(None)
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture
def uri(folder: Path) -> str:
    """Return the URI of the store that the tests share."""
    return f"sqlite:///{folder}/shared store.db"


@pytest.fixture
def tracker(uri: str, request: pytest.FixtureRequest) -> MlflowTracker:
    """Return a tracker with an experiment of the test's own."""
    return MlflowTracker(uri=uri, experiment=request.node.name)


@pytest.fixture
def client(uri: str) -> MlflowClient:
    """Return MLflow's own view of the store."""
    return MlflowClient(uri)


@pytest.fixture
def desk(tracker: MlflowTracker) -> Desk:
    """Return the tracker with a study opened."""
    return Desk(tracker, tracker.open_study(PLAN, True))
