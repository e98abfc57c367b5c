"""The tracker that keeps everything in MLflow, on a sqlite store."""

import contextlib
import http.server
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import onnxruntime
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from onnx_models import feeds, gemm_model
from suite_trackers import PLAN, Desk, Inspector, TrackerSuite

from seqto.errors import TrackingError
from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.ui import COLOUR, trial_name
from seqto.types import (
    TABLES,
    Candidate,
    Front,
    Layer,
    LayerScore,
    Measurement,
    Recommendation,
    StudyPlan,
    TrialState,
)

STATES = {
    "RUNNING": TrialState.RUNNING,
    "FINISHED": TrialState.COMPLETE,
    "FAILED": TrialState.FAILED,
    "KILLED": TrialState.KILLED,
}


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    migrated_store: Path,
) -> Path:
    """Return a folder with an empty store, which the tests of this module share."""
    folder = tmp_path_factory.mktemp("with spaces")
    shutil.copy(migrated_store, folder / "shared store.db")
    return folder


@pytest.fixture(autouse=True)
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


class MlflowInspector:
    """Looks into the store with MLflow's own client."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def study_state(self, study: str) -> TrialState:
        return STATES[self._client.get_run(study).info.status]

    def front(self, study: str) -> dict[str, tuple[int, tuple[str, ...]]]:
        tags = {run.info.run_id: run.data.tags for run in _children(self._client, study)}
        aliases = {
            run: tuple(filter(None, each["seqto.recommended"].split(",")))
            for run, each in tags.items()
        }
        assert {each["seqto.pareto"] for each in tags.values()} <= {"true", "false"}
        assert not any(
            each["seqto.rank"] or aliases[run]
            for run, each in tags.items()
            if each["seqto.pareto"] == "false"
        )
        return {
            run: (int(each["seqto.rank"]), aliases[run])
            for run, each in tags.items()
            if each["seqto.pareto"] == "true"
        }

    def files(self, study: str) -> dict[str, bytes]:
        return {
            each.path: _artifact(self._client, study, each.path)
            for each in self._client.list_artifacts(study)
        }

    def note(self, study: str) -> str:
        return str(self._client.get_run(study).data.tags["mlflow.note.content"])

    def models(self, trial: str) -> list[bytes]:
        run = self._client.get_run(trial)
        outputs = run.outputs.model_outputs if run.outputs else []
        return [
            mlflow.onnx.load_model(f"models:/{each.model_id}").SerializeToString(deterministic=True)
            for each in outputs
        ]

    def data(self, run: str) -> dict[str, tuple[str, str, int]]:
        used = {}
        for each in self._client.get_run(run).inputs.dataset_inputs:
            (context,) = (tag.value for tag in each.tags)
            samples = json.loads(each.dataset.profile)["num_rows"]
            assert context not in used, "recorded twice"
            used[context] = (each.dataset.name, each.dataset.digest, samples)
        return used

    def aliases(self, name: str) -> dict[str, str]:
        found = self._client.get_registered_model(name).aliases
        return {
            alias: self._client.get_model_version(name, version).run_id
            for alias, version in found.items()
        }


class TestMlflowTracker(TrackerSuite):
    """The conformance suite."""

    @pytest.fixture
    def tracker(self, uri: str, request: pytest.FixtureRequest) -> MlflowTracker:
        return MlflowTracker(uri=uri, experiment=request.node.name)

    @pytest.fixture
    def inspector(self, client: MlflowClient) -> Inspector:
        return MlflowInspector(client)


# What MLflow holds


def test_children_have_the_evaluation_data_and_its_source(
    desk: Desk, client: MlflowClient, tmp_path: Path
) -> None:
    photos = tmp_path / "it's photos"
    photos.mkdir()
    # MLflow has one source for what has the same name and digest.
    data = tuple(replace(each, name="photos", source=str(photos)) for each in PLAN.data)
    study = desk.tracker.open_study(replace(PLAN, key="another", data=data), False)
    trial = desk.finish(0, study=study, accuracy_loss=0.1)
    for _ in range(2):
        desk.tracker.log_front(study, Front(("accuracy_loss",), (trial,), (), 0.5), [])
    (used,) = client.get_run(trial.id).inputs.dataset_inputs
    assert used.dataset.digest == PLAN.data[1].digest
    assert (used.dataset.source_type, json.loads(used.dataset.source)) == (
        "local",
        {"uri": str(photos)},
    )


def test_study_is_a_run_as_the_design_says(
    desk: Desk, client: MlflowClient, tmp_path: Path
) -> None:
    desk.tracker.log_analysis(
        desk.study, {"size_bytes": 1000.0}, [LayerScore(Layer("a", "Conv", 8), 1.5, {"db": 20.0})]
    )
    trials = [desk.finish(index, accuracy_loss=index / 10) for index in range(3)]
    desk.fail(3)
    (tmp_path / "report.json").write_text("{}")
    front = Front(("accuracy_loss", "size_bytes"), tuple(trials[:2]), (), 0.625)
    desk.tracker.log_front(desk.study, front, [tmp_path / "report.json"])
    desk.tracker.close_study(desk.study, TrialState.COMPLETE)
    run = client.get_run(desk.study)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == PLAN.name
    assert _own_tags(run) == {**PLAN.tags, "seqto.kind": "study", "seqto.key": PLAN.key}
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.data.params == PLAN.params
    metrics = dict(run.data.metrics)
    assert 0 <= metrics.pop("wall_seconds") < 60
    assert metrics == {
        "float_size_bytes": 1000.0,
        "hypervolume": 0.625,
        "front_size": 2.0,
        "candidates": 4.0,
        "failed": 1.0,
    }
    files = MlflowInspector(client).files(desk.study)
    assert set(files) == {"config.yaml", "sensitivity.json", "report.json"}
    assert files["config.yaml"].decode() == PLAN.config
    assert json.loads(files["sensitivity.json"]) == {
        "layers": [
            {
                **{"rank": 1, "layer": "a", "op_type": "Conv", "weight_bytes": 8},
                **{"score": 1.5, "costs": {}, "sizes": {}, "db": 20.0},
            }
        ]
    }


def test_candidate_is_a_child_run_as_the_design_says(desk: Desk, client: MlflowClient) -> None:
    trial = desk.finish(5, ("b",), sha256="ab" * 32, accuracy_loss=0.25, size_bytes=4096.0)
    run = client.get_run(trial.id)
    assert run.info.status == "FINISHED"
    assert run.info.end_time >= run.info.start_time
    assert run.data.tags["mlflow.parentRunId"] == desk.study
    assert _own_tags(run) == {
        "seqto.kind": "candidate",
        "seqto.key": trial.candidate.key,
        "seqto.pareto": "false",
        "seqto.sha256": "ab" * 32,
    }
    assert run.data.params == {"index": "5", "excluded_count": "1"}
    assert run.data.metrics == {"accuracy_loss": 0.25, "size_bytes": 4096.0}
    assert json.loads(_artifact(client, trial.id, "excluded_layers.json")) == {
        "key": trial.candidate.key,
        "excluded": ["b"],
        "precisions": {"a": "int8", "b": "float32", "c": "int8"},
        "scheme": "",
    }


def test_session_options_of_a_candidate_are_tags_of_its_run(
    desk: Desk, client: MlflowClient
) -> None:
    trial = desk.start(0)
    session = {"session.x64quantprecision": "0", "session.disable_quant_qdq": "1"}
    desk.tracker.finish_trial(trial, Measurement({"loss": 0.5}, "ab" * 32, session), None)
    tags = _own_tags(client.get_run(trial))
    assert tags["seqto.session.x64quantprecision"] == "0"
    assert tags["seqto.session.disable_quant_qdq"] == "1"
    without = _own_tags(client.get_run(desk.finish(1).id))
    assert not [name for name in without if "session" in name]


def test_tables_are_artifacts_of_their_names(desk: Desk, client: MlflowClient) -> None:
    for name in TABLES:
        desk.tracker.log_table(desk.study, name, [{"scheme": name, "base": True, "why": None}])
    files = MlflowInspector(client).files(desk.study)
    assert set(files) == {"config.yaml", "schemes.json", "screening.json"}
    assert json.loads(files["schemes.json"]) == {
        "schemes": [{"scheme": "schemes", "base": True, "why": None}]
    }
    assert json.loads(files["screening.json"])["screening"][0]["scheme"] == "screening"


def test_candidate_of_a_version_without_schemes_is_read(
    desk: Desk, uri: str, client: MlflowClient
) -> None:
    trial = desk.finish(0, ("b",))
    document = json.loads(_artifact(client, trial.id, "excluded_layers.json"))
    del document["scheme"]
    client.log_dict(trial.id, document, "excluded_layers.json")
    # Another tracker, which has not yet read it.
    again = MlflowTracker(uri=uri, experiment=desk.tracker.experiment)  # type: ignore[attr-defined]
    assert again.trial(trial.id).candidate == trial.candidate


def test_runs_say_who_made_them(desk: Desk, client: MlflowClient) -> None:
    tags = client.get_run(desk.study).data.tags
    assert tags["mlflow.user"] and tags["mlflow.source.name"]


@pytest.mark.parametrize("cuts_by_itself", ["true", "false"])
def test_values_beyond_mlflows_limits_are_cut(
    tracker: MlflowTracker,
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
    cuts_by_itself: str,
) -> None:
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", cuts_by_itself)
    desk = Desk(tracker, tracker.open_study(replace(PLAN, params={"long": "p" * 9000}), True))
    assert client.get_run(desk.study).data.params == {"long": "p" * 6000}
    trial = desk.start(0)
    tracker.end_trial(trial, TrialState.FAILED, "r" * 9000)
    assert tracker.trial(trial).failure == "r" * 8000


@pytest.mark.parametrize("count", [100, 101, 250])
def test_all_params_are_stored_however_many(
    tracker: MlflowTracker, client: MlflowClient, count: int
) -> None:
    params = {f"group.option_{number}": str(number) for number in range(count)}
    study = tracker.open_study(StudyPlan("a", "n", {}, params, ""), True)
    assert client.get_run(study).data.params == params


def test_more_children_than_one_page_are_found(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    search = MlflowClient.search_runs

    def in_small_pages(self: MlflowClient, *args: object, **options: object) -> object:
        return search(self, *args, **{**options, "max_results": 2})

    monkeypatch.setattr(MlflowClient, "search_runs", in_small_pages)
    for index in range(5):
        desk.finish(index)
    assert [trial.index for trial in desk.tracker.trials(desk.study)] == [0, 1, 2, 3, 4]


# What its pages show


def test_front_can_be_told_from_the_names_and_colours_of_runs(
    desk: Desk, client: MlflowClient
) -> None:
    trials = [desk.finish(index, accuracy_loss=index / 10) for index in range(3)]
    best = Recommendation("balanced", trials[1])
    for members, recommended, names in (
        (trials[:2], (best,), ["000 front", "001 balanced", "002 excl 0"]),
        (trials[1:], (), ["000 excl 0", "001 front", "002 front"]),
    ):
        front = Front(("accuracy_loss", "size_bytes"), tuple(members), recommended, 0.5)
        # The desk has its own names; those of a study are kept up to date.
        for trial in trials:
            if client.get_run(trial.id).info.run_name == f"{trial.index:03d}":
                client.update_run(trial.id, name=trial_name(trial.index, trial.candidate))
        desk.tracker.log_front(desk.study, front, [])
        runs = [client.get_run(trial.id) for trial in trials]
        assert [run.info.run_name for run in runs] == names
        colours = {
            name.split()[1]: run.data.tags[COLOUR] for name, run in zip(names, runs, strict=True)
        }
        assert len(set(colours.values())) == len(colours)


def test_names_and_colours_that_a_person_chose_are_kept(desk: Desk, client: MlflowClient) -> None:
    trial = desk.finish(0, accuracy_loss=0.5)
    client.update_run(trial.id, name="the good one")
    client.set_tag(trial.id, COLOUR, "#123456")
    front = Front(("accuracy_loss", "size_bytes"), (trial,), (), 0.5)
    desk.tracker.log_front(desk.study, front, [])
    run = client.get_run(trial.id)
    assert (run.info.run_name, run.data.tags[COLOUR]) == ("the good one", "#123456")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_a_person_wrote_below_the_note_is_kept(
    desk: Desk, client: MlflowClient, newline: str
) -> None:
    desk.tracker.log_note(desk.study, "first")
    edited = f"{MlflowInspector(client).note(desk.study)}\n\nMine, *all* mine.\n"
    client.set_tag(desk.study, "mlflow.note.content", edited.replace("\n", newline))
    for text in ("second", "third"):
        desk.tracker.log_note(desk.study, text)
    held = MlflowInspector(client).note(desk.study)
    assert held.startswith("third\n") and held.endswith("\n\nMine, *all* mine.")
    assert "first" not in held and "second" not in held


@pytest.mark.parametrize(
    "edit",
    [
        lambda held: held.replace("first", "first, but changed"),
        lambda held: "first, but changed",
        lambda held: f"{held.replace('first', 'first, but changed')}\n\nAnd more.",
    ],
)
def test_note_that_a_person_changed_is_kept_below(
    desk: Desk, client: MlflowClient, edit: Callable[[str], str]
) -> None:
    desk.tracker.log_note(desk.study, "first")
    held = MlflowInspector(client).note(desk.study)
    client.set_tag(desk.study, "mlflow.note.content", edit(held))
    for text in ("second", "third"):
        desk.tracker.log_note(desk.study, text)
    ours, _, theirs = MlflowInspector(client).note(desk.study).partition("[//]: # ")
    assert ours.startswith("third\n") and "first" not in ours
    assert theirs.count("first, but changed") == 1
    assert "second" not in theirs


def test_notes_that_leave_no_space_are_left_alone(
    desk: Desk, client: MlflowClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.set_tag(desk.study, "mlflow.note.content", "m" * 7900)
    desk.tracker.log_note(desk.study, "front " * 50)
    assert MlflowInspector(client).note(desk.study) == "m" * 7900
    assert desk.study in caplog.text


def test_long_tags_of_a_plan_are_cut(
    tracker: MlflowTracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    study = tracker.open_study(replace(PLAN, tags={"seqto.command": "c" * 9000}), True)
    assert client.get_run(study).data.tags["seqto.command"] == "c" * 8000


# Models


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


def test_models_are_in_the_experiment_of_their_run(desk: Desk, client: MlflowClient) -> None:
    trial, model = desk.finish(0), gemm_model()
    desk.tracker.log_model(trial, model, feeds(model, 1), {})
    run = client.get_run(trial.id)
    (output,) = run.outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert logged.experiment_id == run.info.experiment_id != "0"
    assert logged.status == "READY"
    assert mlflow.onnx.load_model(f"runs:/{trial.id}/model") == model.proto


def test_a_study_is_tagged_by_the_command_that_resumed_it(desk: Desk, client: MlflowClient) -> None:
    plan = replace(PLAN, tags={**PLAN.tags, "seqto.overrides": '["model.path=elsewhere"]'})
    study = desk.tracker.open_study(plan, True)
    assert study == desk.study
    assert client.get_run(study).data.tags["seqto.overrides"] == '["model.path=elsewhere"]'


# Interrupted writing


class Killed(BaseException):
    """Stands for SIGKILL: nothing that seqto does can follow it."""


@pytest.mark.parametrize("last", ["create_run", "log_dict", "log_batch"])
def test_child_run_that_was_killed_as_it_began_is_no_obstacle(
    desk: Desk, client: MlflowClient, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    done = desk.finish(0)
    _killed_after(monkeypatch, last, lambda: desk.start(1))
    assert desk.tracker.open_study(PLAN, True) == desk.study
    assert not [run for run in _children(client, desk.study) if run.info.status == "RUNNING"]
    assert desk.tracker.trials(desk.study)[0] == done
    again = desk.finish(1)
    assert desk.chosen() == [done.id, again.id]


@pytest.mark.parametrize("last", ["log_batch", "set_terminated"])
def test_child_run_that_was_killed_as_it_ended_is_whole_or_run_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    trial = desk.start(0)
    measured = Measurement({"accuracy_loss": 0.5}, "ab" * 32)
    _killed_after(monkeypatch, last, lambda: desk.tracker.finish_trial(trial, measured, None))
    desk.tracker.open_study(PLAN, True)
    (found,) = desk.tracker.trials(desk.study)
    whole = last == "set_terminated"
    assert found.state is (TrialState.COMPLETE if whole else TrialState.KILLED)
    assert (desk.tracker.twin(desk.study, "ab" * 32) == found) is whole


@pytest.mark.parametrize("last", ["create_run", "log_batch"])
def test_study_that_was_killed_as_it_began_is_completed(
    tracker: MlflowTracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    _killed_after(monkeypatch, last, lambda: tracker.open_study(PLAN, True))
    study = tracker.open_study(PLAN, True)
    assert client.get_run(study).data.params == PLAN.params
    assert _artifact(client, study, "config.yaml").decode() == PLAN.config
    assert len(client.search_runs([client.get_run(study).info.experiment_id])) == 1


@pytest.mark.parametrize("during", ["log_batch", "set_terminated"])
def test_ctrl_c_waits_until_a_record_is_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    real, trial = getattr(MlflowClient, during), desk.start(0)

    def interrupted(self: MlflowClient, *args: object, **options: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MlflowClient, during, interrupted)
        desk.tracker.finish_trial(trial, Measurement({"accuracy_loss": 0.5}, "ab" * 32), None)
    assert desk.tracker.trial(trial).state is TrialState.COMPLETE


# Runs around a study


def test_study_nests_under_the_run_of_mlflow_run(
    tracker: MlflowTracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = client.create_experiment("mlflow run")
    outer = client.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", outer)
    desk = Desk(tracker, tracker.open_study(PLAN, True))
    trial, model = desk.finish(0, accuracy_loss=0.5), gemm_model()
    tracker.log_model(trial, model, feeds(model, 1), {})
    tracker.log_front(desk.study, Front(("accuracy_loss",), (trial,), (), 0.5), [])
    tracker.close_study(desk.study, TrialState.COMPLETE)
    assert client.get_run(desk.study).data.tags["mlflow.parentRunId"] == outer
    assert client.get_run(trial.id).data.tags["mlflow.parentRunId"] == desk.study
    untouched = client.get_run(outer)
    assert untouched.info.status == "RUNNING"
    assert not untouched.data.params and not untouched.data.metrics
    assert not _own_tags(untouched) and not client.list_artifacts(outer)
    assert not untouched.outputs or not untouched.outputs.model_outputs
    assert mlflow.active_run() is None


def test_without_an_experiment_of_its_own_it_is_that_of_mlflow_run(
    uri: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = client.create_run(client.create_experiment("of mlflow run")).info
    monkeypatch.setenv("MLFLOW_RUN_ID", outer.run_id)
    study = client.get_run(MlflowTracker(uri=uri).open_study(PLAN, False))
    assert study.info.experiment_id == outer.experiment_id
    monkeypatch.delenv("MLFLOW_RUN_ID")
    alone = client.get_run(MlflowTracker(uri=uri).open_study(PLAN, False))
    assert client.get_experiment(alone.info.experiment_id).name == "seqto"


def test_a_run_of_mlflow_run_in_another_store_is_no_parent(
    tracker: MlflowTracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "ab" * 16)
    study = client.get_run(tracker.open_study(PLAN, True))
    assert "mlflow.parentRunId" not in study.data.tags


def test_run_that_is_none_of_seqtos_is_refused(tracker: MlflowTracker, uri: str) -> None:
    client = MlflowClient(uri)
    stranger = client.create_run(client.create_experiment("strangers")).info.run_id
    with pytest.raises(TrackingError, match=f"'{stranger}' is no candidate of seqto"):
        tracker.trial(stranger)


# Where the store is


def test_default_store_is_in_the_current_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    migrated_store: Path,
) -> None:
    here = tmp_path / "a folder"
    here.mkdir()
    shutil.copy(migrated_store, here / "mlflow.db")
    monkeypatch.chdir(here)
    desk = Desk(tracker := MlflowTracker(), tracker.open_study(PLAN, True))
    trial = desk.finish(0)
    assert desk.tracker.trials(desk.study) == (trial,)
    assert MlflowClient(f"sqlite:///{here}/mlflow.db").get_run(desk.study)
    assert list((here / "mlruns").rglob("config.yaml")), "artifacts lie beside the store"


def test_store_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, uri: str, client: MlflowClient
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert client.get_run(MlflowTracker(experiment="environment").open_study(PLAN, True))


def test_figures_of_a_study_are_its_metrics(desk: Desk, client: MlflowClient) -> None:
    desk.tracker.log_figures(desk.study, {"sensitivity_stability": 0.5})
    assert client.get_run(desk.study).data.metrics["sensitivity_stability"] == 0.5


def test_address_of_a_store_says_how_to_serve_it(
    desk: Desk, uri: str, client: MlflowClient
) -> None:
    address = desk.tracker.address(desk.study)
    experiment = client.get_run(desk.study).info.experiment_id
    page = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{desk.study}"
    assert address.url == f"{page}?workflowType=machine_learning"
    command, *arguments = shlex.split(address.command)
    assert Path(command).name == "mlflow"
    # Served from the folder that the store is in, its name is enough.
    here = uri.replace(f"{Path.cwd()}/", "")
    assert arguments == ["ui", "--backend-store-uri", here] and here != uri


@pytest.mark.parametrize("slash", ["", "/"])
def test_address_of_a_server_is_its_page(slash: str) -> None:
    answer = {"experiment": {"experiment_id": "7", "name": "seqto", "lifecycle_stage": "active"}}
    with _server(json.dumps(answer)) as server:
        address = MlflowTracker(uri=server + slash).address("abc")
        assert address.url == f"{server}/#/experiments/7/runs/abc?workflowType=machine_learning"
        assert address.command == ""


def test_server_that_is_not_mlflow_is_named() -> None:
    with _server("<html>Welcome</html>") as server, pytest.raises(TrackingError, match=server):
        MlflowTracker(uri=server).open_study(PLAN, True)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("sqlite:///{tmp}/text.db", "not a database"),
        ("sqlite:///{tmp}/text.db/more.db", "Not a directory|File exists|unable to open"),
        ("nonsense://somewhere", "unsupported URI"),
        ("postgresql://127.0.0.1:9/nothing", "psycopg|refused"),
    ],
)
def test_wrong_uri_is_an_error_soon(tmp_path: Path, wrong: str, cause: str) -> None:
    (tmp_path / "text.db").write_text("This is no database.\n" * 100)
    wrong = wrong.format(tmp=tmp_path)
    start = time.monotonic()
    with pytest.raises(TrackingError, match=f"(?s){wrong}.*({cause}).*Check tracking.uri"):
        MlflowTracker(uri=wrong).open_study(PLAN, True)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("begin", [MlflowTracker.open_study, MlflowTracker.start_trial])
def test_deleted_experiment_is_an_error_with_the_remedy(
    tracker: MlflowTracker, client: MlflowClient, begin: object
) -> None:
    experiment = client.create_experiment(tracker.experiment)
    client.delete_experiment(experiment)
    restore = f"mlflow experiments restore -x {experiment}"
    with pytest.raises(TrackingError, match=restore):
        if begin is MlflowTracker.open_study:
            tracker.open_study(PLAN, True)
        else:
            tracker.start_trial(None, 0, Candidate.excluding("a", ()), "alone")


@pytest.mark.slow
def test_processes_may_make_the_same_store_at_once(tmp_path: Path) -> None:
    code = (
        "from seqto.tracking.mlflow import MlflowTracker\n"
        "from seqto.types import StudyPlan\n"
        "print(MlflowTracker().open_study(StudyPlan('k', 'n', {}, {}, ''), False))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("seqto").experiment_id
    assert len(client.search_runs([experiment])) == 2


def _children(client: MlflowClient, study: str) -> list[Run]:
    experiment = client.get_run(study).info.experiment_id
    return list(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{study}'"))


def _own_tags(run: Run) -> dict[str, str]:
    return {name: value for name, value in run.data.tags.items() if name.startswith("seqto.")}


def _artifact(client: MlflowClient, run: str, path: str) -> bytes:
    return Path(client.download_artifacts(run, path)).read_bytes()


def _killed_after(monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[], object]) -> None:
    """Have a call to MLflow be the last thing that the process does."""
    real = getattr(MlflowClient, method)

    def last(self: MlflowClient, *args: object, **options: object) -> None:
        real(self, *args, **options)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(MlflowClient, method, last)
        act()


@contextlib.contextmanager
def _server(answer: str) -> Iterator[str]:
    """Serve this answer to every question, as far as it goes like a tracking server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
