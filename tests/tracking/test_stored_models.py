"""Models that studies put into MLflow: logged to runs, registered as versions."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import onnxruntime
import pytest
from mlflow.tracking import MlflowClient
from onnx_models import feeds, gemm_model
from stateful_models import Dims, shaped
from suite_trackers import PLAN, Desk

from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.stores import global_uri
from seqto.types import Recommendation

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


@pytest.fixture(scope="module")
def registered(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the name of a registered model, whose device needed a session option."""
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQTO_CACHE", str(tmp_path_factory.mktemp("cache")))
        tracker = MlflowTracker(uri=f"sqlite:///{folder}/shared store.db", experiment="registered")
        desk = Desk(tracker, tracker.open_study(PLAN, True))
        trial, model = desk.finish(0, ("a",), accuracy_loss=0.125, size_ratio=0.5), gemm_model()
        facts = {
            "runtime": "onnxruntime",
            "provider": "CPUExecutionProvider",
            "session.x64quantprecision": "1",
        }
        tracker.log_model(trial, model, feeds(model, 1), facts)
        tracker.register(desk.study, "seqto-gemm-cpu", [Recommendation("balanced", trial)])
    yield "seqto-gemm-cpu"


def test_registered_model_loads_by_alias(registered: str, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    loaded = mlflow.onnx.load_model(f"models:/{registered}@balanced")
    assert loaded.SerializeToString(deterministic=True) == gemm_model().to_bytes()


def test_registered_model_predicts_as_a_session_with_its_options(
    registered: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow.set_tracking_uri(uri)
    used: list[onnxruntime.SessionOptions] = []
    session = onnxruntime.InferenceSession

    def spied(model: object, sess_options: onnxruntime.SessionOptions, **more: object) -> object:
        used.append(sess_options)
        return session(model, sess_options=sess_options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", spied)
    served = mlflow.pyfunc.load_model(f"models:/{registered}@balanced")
    assert used[0].get_session_config_entry("session.x64quantprecision") == "1"
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    model = gemm_model()
    inputs = feeds(model, 3)
    expected = session(model.to_bytes(), options).run(None, inputs)[0]
    np.testing.assert_array_equal(served.predict(inputs)["y"], expected)
    np.testing.assert_array_equal(served.predict(inputs["x"])["y"], expected)


def test_metadata_of_a_model_has_the_session_options(registered: str, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    metadata = mlflow.models.get_model_info(f"models:/{registered}@balanced").metadata
    assert metadata["session.x64quantprecision"] == "1"
    assert "runtime" not in metadata


def test_registered_model_has_a_signature_for_any_batch(registered: str, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    signature = mlflow.models.get_model_info(f"models:/{registered}@balanced").signature
    assert [(each.name, each.shape) for each in signature.inputs] == [("x", (-1, 6))]
    assert [(each.name, each.shape) for each in signature.outputs] == [("y", (-1, 4))]


def test_signature_leaves_free_what_the_graph_leaves_free(desk: Desk, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    dims: Dims = ["batch", "length", 4]
    model = shaped({"x": dims, "past": dims}, {"y": dims})
    example = {"x": np.zeros((1, 7, 4), np.float32), "past": np.zeros((1, 0, 4), np.float32)}
    trial = desk.finish(0, ("a",), accuracy_loss=0.125, size_ratio=0.5)
    desk.tracker.log_model(trial, model, example, {})
    desk.tracker.register(desk.study, "free", [Recommendation("balanced", trial)])
    info = mlflow.models.get_model_info("models:/free@balanced")
    assert info.signature is not None
    assert [each.shape for each in info.signature.inputs] == [(-1, -1, 4), (-1, -1, 4)]
    # As JSON, the empty cache would have another shape, and MLflow would warn.
    assert info.saved_input_example_info is None


def test_version_says_what_it_is(registered: str, client: MlflowClient) -> None:
    (version,) = client.search_model_versions(f"name = '{registered}'")
    # Lists of versions show some twenty characters.
    figures = "50% size, 12.50% loss"
    assert version.description == f"{figures}, candidate 0, 1 of 3 layers in float32"
    assert version.tags["seqto.study"]


def test_registered_model_says_what_its_aliases_mean(registered: str, client: MlflowClient) -> None:
    found = client.get_registered_model(registered)
    assert found.tags == {"seqto.model": "tiny", "seqto.device": "cpu"}
    assert f'mlflow.onnx.load_model("models:/{registered}@balanced")' in found.description
    assert all(f"**{alias}**" in found.description for alias in ("balanced", "small", "champion"))


def test_registering_again_makes_no_new_version(desk: Desk, client: MlflowClient) -> None:
    trial, model = desk.finish(0), gemm_model()
    desk.tracker.log_model(trial, model, feeds(model, 1), {})
    for alias in ("balanced", "small", "balanced"):
        desk.tracker.register(desk.study, "seqto-once", [Recommendation(alias, trial)])
    assert len(client.search_model_versions("name = 'seqto-once'")) == 1


def test_models_go_to_the_store_of_their_tracker(
    desk: Desk,
    client: MlflowClient,
    migrated_store: Path,
    tmp_path: Path,
) -> None:
    shutil.copy(migrated_store, tmp_path / "other.db")
    other = MlflowTracker(uri=f"sqlite:///{tmp_path}/other.db")
    other.open_study(PLAN, True)
    trial, model = desk.finish(0), gemm_model()
    desk.tracker.log_model(trial, model, feeds(model, 1), {})
    assert client.get_run(trial.id).outputs.model_outputs


def test_model_that_a_killed_process_began_to_log_is_removed(
    desk: Desk, client: MlflowClient
) -> None:
    trial, model = desk.finish(0), gemm_model()
    experiment = client.get_run(trial.id).info.experiment_id
    begun = client.create_logged_model(experiment, "model", source_run_id=trial.id)
    desk.tracker.log_model(trial, model, feeds(model, 1), {})
    (left,) = client.search_logged_models([experiment])
    assert left.model_id != begun.model_id and left.status == "READY"


def test_models_are_in_the_experiment_of_their_run(desk: Desk, client: MlflowClient) -> None:
    trial, model = desk.finish(0), gemm_model()
    desk.tracker.log_model(trial, model, feeds(model, 1), {})
    run = client.get_run(trial.id)
    (output,) = run.outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert logged.experiment_id == run.info.experiment_id != "0"
    assert logged.status == "READY"
    with global_uri(desk.tracker.store):
        assert mlflow.onnx.load_model(f"runs:/{trial.id}/model") == model.proto


def test_the_store_that_a_program_uses_stays_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gemm_model()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for uri in (None, "sqlite:///somewhere-else.db"):
        mlflow.set_tracking_uri(uri)
        before = mlflow.is_tracking_uri_set(), mlflow.get_tracking_uri()
        desk.tracker.log_model(desk.finish(0 if uri else 1), model, feeds(model, 1), {})
        assert (mlflow.is_tracking_uri_set(), mlflow.get_tracking_uri()) == before
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///of-the-environment.db")
    desk.tracker.log_model(desk.finish(2), model, feeds(model, 1), {})
    assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:///of-the-environment.db"
