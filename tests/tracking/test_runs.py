"""Runs of an MLflow store: their limits, their pages, and what is around them."""

from dataclasses import replace

import mlflow
import pytest
from mlflow.tracking import MlflowClient
from mlflow_inspector import own_tags
from onnx_models import feeds, gemm_model
from suite_trackers import PLAN, Desk

from seqto.errors import TrackingError
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Front, StudyPlan, TrialState

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


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


def test_long_tags_of_a_plan_are_cut(
    tracker: MlflowTracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    study = tracker.open_study(replace(PLAN, tags={"seqto.command": "c" * 9000}), True)
    assert client.get_run(study).data.tags["seqto.command"] == "c" * 8000


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
    assert not own_tags(untouched) and not client.list_artifacts(outer)
    assert not untouched.outputs or not untouched.outputs.model_outputs
    assert mlflow.active_run() is None


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
