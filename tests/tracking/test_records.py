"""What the runs of studies and candidates hold, and how it is read back."""

import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from mlflow_inspector import MlflowInspector, artifact, own_tags
from suite_trackers import PLAN, Desk

from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.records import KINDS, candidate_tags
from seqto.types import TABLES, Candidate, Front, Layer, LayerScore, Measurement, TrialState

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


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
    assert own_tags(run) == {**PLAN.tags, "seqto.kind": "study", "seqto.key": PLAN.key}
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
    assert own_tags(run) == {
        "seqto.kind": "candidate",
        "seqto.key": trial.candidate.key,
        "seqto.pareto": "false",
        # Until it is on a front.
        **{"seqto.rank": "", "seqto.recommended": ""},
        "seqto.sha256": "ab" * 32,
        # What candidates of all studies are compared by.
        **{name: PLAN.tags[name] for name in KINDS if name in PLAN.tags},
        "seqto.index": "5",
        "seqto.precisions": "1 float32, 2 int8",
        "seqto.layers.float32": "b",
        "seqto.layers.int8": "a, c",
    }
    assert run.data.params == {"excluded_count": "1"}
    assert run.data.metrics == {"accuracy_loss": 0.25, "size_bytes": 4096.0}
    assert json.loads(artifact(client, trial.id, "excluded_layers.json")) == {
        "key": trial.candidate.key,
        "excluded": ["b"],
        "precisions": {"a": "int8", "b": "float32", "c": "int8"},
        "scheme": "",
    }


def test_candidate_without_a_study_has_nothing_of_a_front(desk: Desk, client: MlflowClient) -> None:
    run = desk.tracker.start_trial(None, 0, Candidate.excluding("abc", "a"), "000")
    desk.tracker.finish_trial(run, Measurement({"accuracy_loss": 0.5}, "ab" * 32), None)
    tags = client.get_run(run).data.tags
    assert tags["seqto.pareto"] == "false"
    assert not {"seqto.rank", "seqto.recommended", "mlflow.runColor"} & tags.keys()


def test_candidates_are_found_by_what_they_have_in_which_precision(
    desk: Desk, client: MlflowClient
) -> None:
    first, second = desk.finish(0, ("b",)), desk.finish(1, ("a",))
    experiment = client.get_run(desk.study).info.experiment_id

    def found(condition: str) -> set[str]:
        return {run.info.run_id for run in client.search_runs([experiment], condition)}

    assert found("tags.`seqto.layers.int8` LIKE '%b%'") == {second.id}
    assert found("tags.`seqto.layers.float32` LIKE '%b%' AND tags.`seqto.device` = 'cpu'") == {
        first.id
    }


def test_long_lists_of_layers_are_cut_with_a_count() -> None:
    names = [f"/a/rather/long/name/of/layer{index:03d}/Conv" for index in range(200)]
    tags = candidate_tags(Candidate.excluding(names, names[:1]))
    assert tags["seqto.precisions"] == "1 float32, 199 int8"
    text = tags["seqto.layers.int8"]
    shown, _, more = text.rpartition(" and ")
    assert 3900 < len(text) < 4100
    kept = shown.split(", ")
    assert kept == names[1 : 1 + len(kept)]
    assert len(kept) + int(more.removesuffix(" more")) == 199


def test_candidate_of_a_version_with_its_index_as_a_param_is_read(
    desk: Desk, client: MlflowClient
) -> None:
    trial = desk.finish(3, ("b",))
    client.delete_tag(trial.id, "seqto.index")
    assert desk.tracker.trials(desk.study) == ()
    client.log_param(trial.id, "index", "3")
    assert [each.index for each in desk.tracker.trials(desk.study)] == [3]


def test_session_options_of_a_candidate_are_tags_of_its_run(
    desk: Desk, client: MlflowClient
) -> None:
    trial = desk.start(0)
    session = {"session.x64quantprecision": "0", "session.disable_quant_qdq": "1"}
    desk.tracker.finish_trial(trial, Measurement({"loss": 0.5}, "ab" * 32, session), None)
    tags = own_tags(client.get_run(trial))
    assert tags["seqto.session.x64quantprecision"] == "0"
    assert tags["seqto.session.disable_quant_qdq"] == "1"
    without = own_tags(client.get_run(desk.finish(1).id))
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


def test_figures_of_a_study_are_its_metrics(desk: Desk, client: MlflowClient) -> None:
    desk.tracker.log_figures(desk.study, {"sensitivity_stability": 0.5})
    assert client.get_run(desk.study).data.metrics["sensitivity_stability"] == 0.5


def test_candidate_of_a_version_without_schemes_is_read(
    desk: Desk, uri: str, client: MlflowClient
) -> None:
    trial = desk.finish(0, ("b",))
    document = json.loads(artifact(client, trial.id, "excluded_layers.json"))
    del document["scheme"]
    client.log_dict(trial.id, document, "excluded_layers.json")
    # Another tracker, which has not yet read it.
    again = MlflowTracker(uri=uri, experiment=desk.tracker.experiment)  # type: ignore[attr-defined]
    assert again.trial(trial.id).candidate == trial.candidate
