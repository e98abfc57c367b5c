"""Models that MLflow holds, from a real store."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient
from onnx_models import residual
from pydantic import ValidationError
from suite_sources import ModelSourceSuite

from seqto.errors import ModelError
from seqto.tracking.registry import RegistryModel

CONTENT = residual().to_bytes()


@dataclass(frozen=True)
class Store:
    """A store with the residual model in a run, registered as `mine` with the alias `best`."""

    uri: str
    run: str


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, migrated_store: Path) -> Iterator[Store]:
    """Return a store that the tests of this module share."""
    folder = tmp_path_factory.mktemp("registry")
    shutil.copy(migrated_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("e", artifact_location=(folder / "files").as_uri())
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.onnx.log_model(
            residual().proto,
            name="classifier",
            registered_model_name="mine",
            pip_requirements=["onnx"],
            save_as_external_data=False,
        )
        (folder / "plain.onnx").write_bytes(CONTENT)
        mlflow.log_artifact(str(folder / "plain.onnx"), "files")
        mlflow.log_text("no model", "notes/notes.txt")
    MlflowClient(uri).set_registered_model_alias("mine", "best", "1")
    mlflow.set_tracking_uri(None)
    yield Store(uri, run.info.run_id)
    mlflow.set_tracking_uri(None)


class TestRegistryModel(ModelSourceSuite):
    """The conformance suite."""

    @pytest.fixture
    def source(self, store: Store) -> RegistryModel:
        """Return the registered model by its alias."""
        return RegistryModel(uri="models:/mine@best", tracking_uri=store.uri)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("models:/mine@best", "mine"),
        ("models:/mine/1", "mine"),
        ("runs:/{run}/classifier", "classifier"),
        ("runs:/{run}/files/plain.onnx", "plain"),
        ("runs:/{run}/files", "files"),
    ],
)
def test_every_kind_of_address(store: Store, uri: str, name: str) -> None:
    source = RegistryModel(uri=uri.format(run=store.run), tracking_uri=store.uri)
    assert source.name == name
    assert source.load().to_bytes() == CONTENT


@pytest.mark.parametrize(
    "uri", ["models:/mine@worst", "models:/mine/7", "models:/other@best", "runs:/abc/model"]
)
def test_what_is_not_there_is_named(store: Store, uri: str) -> None:
    with pytest.raises(ModelError, match=f"has no {uri} .*model.uri.*tracking.uri") as raised:
        RegistryModel(uri=uri, tracking_uri=store.uri).load()
    assert "\n" not in str(raised.value)


def test_what_is_no_onnx_model_is_refused(store: Store) -> None:
    with pytest.raises(ModelError, match="is a folder with 0 ONNX files"):
        RegistryModel(uri=f"runs:/{store.run}/notes", tracking_uri=store.uri).load()


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValidationError, match="uri"):
        RegistryModel(uri="my.onnx")


def test_the_store_is_mlflows_own_unless_given(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    assert RegistryModel(uri="models:/mine/1").load().to_bytes() == CONTENT
