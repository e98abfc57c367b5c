"""An empty folder with a store, and a cache that the tests share."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest

from seqto.datasets.digits import DigitsDataset
from seqto.graph.load import input_specs
from seqto.models.embedded import EmbeddedModel


@pytest.fixture(autouse=True)
def home(
    cache: Path, migrated_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Return the folder in which the test calls seqto."""
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQTO_CACHE", str(cache))
    for name in ("SEQTO_DEBUG", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    mlflow.set_tracking_uri(None)
    yield tmp_path
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(None)
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    mlflow.tracking.fluent._active_experiment_id = None


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 200 handwritten digits with their labels."""
    dataset = DigitsDataset(calibration_size=50, evaluation_size=150)
    splits = dataset.load(input_specs(EmbeddedModel().load()))
    halves = splits.calibration, splits.evaluation
    images = np.concatenate([next(iter(each.inputs.values())) for each in halves])
    labels = np.concatenate([each.targets for each in halves if each.targets is not None])
    return images, labels


@pytest.fixture
def path(home: Path) -> Path:
    """Return the file of a model of the user's."""
    path = home / "my.onnx"
    path.write_bytes(EmbeddedModel().load().to_bytes())
    return path
