"""The tracker that keeps everything in MLflow, on a sqlite store."""

import functools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow_inspector import MlflowInspector, artifact, children
from suite_trackers import PLAN, Desk, Inspector, TrackerSuite

from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.ui import COLOUR, trial_name
from seqto.types import Candidate, Front, Measurement, Recommendation, TrialState, sha256

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


class TestMlflowTracker(TrackerSuite):
    """The conformance suite."""

    @pytest.fixture
    def tracker(self, uri: str, request: pytest.FixtureRequest) -> MlflowTracker:
        return MlflowTracker(uri=uri, experiment=request.node.name)

    @pytest.fixture
    def inspector(self, client: MlflowClient) -> Inspector:
        return MlflowInspector(client)


def test_a_view_that_mlflow_does_not_take_is_no_error(
    desk: Desk, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = desk.finish(0, accuracy_loss=0.25, size_bytes=4096.0)

    def refuse(self: MlflowClient, experiment: str, name: str, value: object) -> None:
        raise MlflowException(f"no tag {name} here")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    desk.tracker.log_front(desk.study, Front(("accuracy_loss",), (trial,), (), 0.5), [])
    assert client.get_run(desk.study).data.metrics["front_size"] == 1
    assert client.get_run(trial.id).data.tags["seqto.pareto"] == "true"


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


def test_a_study_is_tagged_by_the_command_that_resumed_it(desk: Desk, client: MlflowClient) -> None:
    plan = replace(PLAN, tags={**PLAN.tags, "seqto.overrides": '["model.path=elsewhere"]'})
    study = desk.tracker.open_study(plan, True)
    assert study == desk.study
    assert client.get_run(study).data.tags["seqto.overrides"] == '["model.path=elsewhere"]'


def test_front_can_be_told_from_the_names_and_colours_of_runs(
    desk: Desk, client: MlflowClient
) -> None:
    trials = [desk.finish(index, accuracy_loss=index / 10) for index in range(3)]
    best = Recommendation("balanced", trials[1])
    for members, recommended, names in (
        (trials[:2], (best,), ["000 front", "001 balanced", "002 excl 1"]),
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


# Interrupted writing


class Killed(BaseException):
    """Stands for SIGKILL: nothing that seqto does can follow it."""


SMALL = Candidate.excluding("abc", "a")
# Too many odd names for a tag, so that only the artifact has them.
LARGE = Candidate.of({sha256(str(at).encode()): "int8" for at in range(300)})


@pytest.mark.parametrize(
    ("last", "candidate"),
    [("create_run", SMALL), ("create_run", LARGE), ("log_batch", LARGE)],
    ids=["small", "large", "large, all but returned"],
)
def test_child_run_that_was_killed_as_it_began_is_no_obstacle(
    desk: Desk,
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
    last: str,
    candidate: Candidate,
) -> None:
    done = desk.finish(0)
    start = functools.partial(desk.tracker.start_trial, desk.study, 1, candidate, "001")
    _killed_after(monkeypatch, last, start)
    assert desk.tracker.open_study(PLAN, True) == desk.study
    assert not [run for run in children(client, desk.study) if run.info.status == "RUNNING"]
    assert desk.tracker.trials(desk.study)[0] == done
    again = start()
    desk.tracker.finish_trial(again, Measurement({"accuracy_loss": 0.5}, "ab" * 32), None)
    assert desk.chosen() == [done.id, again]
    assert desk.tracker.trial(again).candidate == candidate


@pytest.mark.parametrize("candidate", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("how", ["finished", "failed", "killed"])
def test_every_run_that_ended_lists_its_layers(
    uri: str, desk: Desk, client: MlflowClient, how: str, candidate: Candidate
) -> None:
    run = desk.tracker.start_trial(desk.study, 0, candidate, "000")
    if how == "finished":
        desk.tracker.finish_trial(run, Measurement({"accuracy_loss": 0.5}, "ab" * 32), None)
    elif how == "failed":
        desk.tracker.end_trial(run, TrialState.FAILED, "DeviceError: out of memory")
    else:
        # By another process than the one that started it.
        experiment = cast(MlflowTracker, desk.tracker).experiment
        MlflowTracker(uri=uri, experiment=experiment).open_study(PLAN, True)
    layers = json.loads(artifact(client, run, "excluded_layers.json"))
    assert layers["precisions"] == dict(candidate.precisions)
    params = client.get_run(run).data.params
    assert params == {"excluded_count": str(len(candidate.excluded))}


# What a candidate costs: MLflow's calls take nearly all of it.


def test_a_candidate_is_recorded_with_few_calls(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.finish(0, accuracy_loss=0.5)
    calls = _calls(monkeypatch)
    for index in (1, 2):
        trial = desk.start(index)
        measured = Measurement({"accuracy_loss": 0.5}, f"{index:064x}", losses=(0.0, 1.0))
        assert desk.tracker.twin(desk.study, measured.model_sha256) is None
        desk.tracker.finish_trial(trial, measured, None)
        assert desk.tracker.trial(trial).losses == measured.losses
    each = ["create_run", "log_inputs", "log_batch", "set_terminated", "search_runs"]
    assert calls == each * 2


def test_only_what_a_front_changes_is_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [desk.finish(index, accuracy_loss=index / 10) for index in range(5)]
    front = Front(("accuracy_loss", "size_bytes"), (trials[3],), (), 0.5)
    calls = _calls(monkeypatch)
    desk.tracker.log_front(desk.study, front, [])
    assert calls.count("log_batch") == len(["the member", "the study"])
    calls.clear()
    desk.tracker.log_front(desk.study, front, [])
    assert calls.count("log_batch") == len(["the study"])
    assert calls.count("log_inputs") == 0


def _calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each call to MLflow's client."""
    names: list[str] = []
    for name in CALLS:
        real = getattr(MlflowClient, name)

        def noted(
            self: MlflowClient,
            *args: object,
            name: str = name,
            real: Callable[..., object] = real,
            **options: object,
        ) -> object:
            names.append(name)
            return real(self, *args, **options)

        monkeypatch.setattr(MlflowClient, name, noted)
    return names


CALLS = (
    *("create_run", "get_run", "search_runs", "update_run", "set_terminated"),
    *("log_batch", "log_inputs", "log_artifact", "log_artifacts", "set_tag"),
)


def test_models_that_were_measured_before_are_known_to_a_resumed_study(
    uri: str, desk: Desk
) -> None:
    first = desk.finish(0, sha256="ab" * 32, accuracy_loss=0.5)
    desk.finish(1, sha256="ab" * 32, duplicate_of=0, accuracy_loss=0.5)
    experiment = cast(MlflowTracker, desk.tracker).experiment
    other = MlflowTracker(uri=uri, experiment=experiment)
    assert other.twin(desk.study, "ab" * 32) == first, "without having opened it"
    assert other.open_study(PLAN, True) == desk.study
    assert other.twin(desk.study, "ab" * 32) == first
    assert other.twin(desk.study, "cd" * 32) is None


def test_descriptions_have_the_latest_figures_and_a_persons_words(
    desk: Desk, client: MlflowClient
) -> None:
    note = "mlflow.note.content"
    trials = [desk.finish(index, accuracy_loss=0.5, latency_ms=1.0) for index in (0, 1)]
    assert "1.00 ms" in client.get_run(trials[0].id).data.tags[note]
    client.set_tag(trials[1].id, note, "mine, 1.00 ms")
    desk.tracker.log_times(desk.study, {}, {each.id: {"latency_ms": 7.0} for each in trials})
    front = Front(("accuracy_loss", "size_bytes"), (), (), 0.5)
    desk.tracker.log_front(desk.study, front, [])
    assert "7.00 ms" in client.get_run(trials[0].id).data.tags[note]
    assert client.get_run(trials[1].id).data.tags[note] == "mine, 1.00 ms"


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
    assert artifact(client, study, "config.yaml").decode() == PLAN.config
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


def _killed_after(monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[], object]) -> None:
    """Have a call to MLflow be the last thing that the process does."""
    real = getattr(MlflowClient, method)

    def last(self: MlflowClient, *args: object, **options: object) -> None:
        real(self, *args, **options)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(MlflowClient, method, last)
        act()


def test_one_run_of_a_candidate_stays_finished_whoever_writes(uri: str, desk: Desk) -> None:
    tracker = cast(MlflowTracker, desk.tracker)
    other = MlflowTracker(uri=uri, experiment=tracker.experiment)
    candidate, measured = Candidate.excluding(["a", "b"], ["a"]), Measurement({"x": 1.0}, "sha")
    first, second = (each.start_trial(desk.study, 0, candidate, "000") for each in (tracker, other))
    third = tracker.start_trial(desk.study, 1, Candidate.excluding(["a", "b"], ["b"]), "001")
    for each, run in ((other, second), (tracker, first), (tracker, third)):
        each.finish_trial(run, measured, None)
    states = {run: tracker.client.get_run(run).info.status for run in (first, second, third)}
    assert states == {first: "KILLED", second: "FINISHED", third: "FINISHED"}
    assert tracker.trial(first).id == second, "the one that was finished before"
    assert [each.id for each in tracker.trials(desk.study)] == [second, third]
