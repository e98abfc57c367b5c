"""An empty MLflow store to copy: making one costs seconds of migrations."""

import contextlib
import os
import shutil
from pathlib import Path

import filelock
import pytest


@pytest.fixture(scope="session")
def migrated_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a sqlite file that has MLflow's tables, and nothing in them."""
    folder = tmp_path_factory.getbasetemp()
    # The workers of pytest-xdist have a folder in common.
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / "migrated" / "mlflow.db"
    path.parent.mkdir(exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")):
        if not path.exists():
            _migrate(path)
    return path


def _migrate(path: Path) -> None:
    from mlflow.tracking import MlflowClient

    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    # MLflow makes its folder for artifacts wherever the process is.
    with contextlib.chdir(path.parent):
        MlflowClient(f"sqlite:///{temporary}").search_experiments()
    shutil.copy(temporary, path)
