"""What MLflow's pages are told of a study; tests/browser looks at the pages themselves."""

import base64
import json
import zlib
from typing import Any
from urllib.parse import unquote

import pytest
from studies import ladder_study, trial

from seqto.pareto.front import find_front
from seqto.tracking.ui import (
    described,
    experiment_tags,
    looks,
    study_pages,
    study_views,
    trial_name,
)
from seqto.types import Candidate, Front, Recommendation

LONGEST_TAG = 5000
"""Of an experiment, in the oldest version of MLflow that seqto takes."""


def unpacked(value: str) -> dict[str, Any]:
    kind, _, packed = value.partition(";")
    assert kind == "deflate"
    return dict(json.loads(zlib.decompress(base64.b64decode(packed))))


def ladder_front(*objectives: str) -> Front:
    record = ladder_study()
    return find_front(record.trials, objectives or ("accuracy_loss", "size_bytes"), record.baseline)


def test_twelve_characters_tell_trials_apart() -> None:
    layers = [f"l{number}" for number in range(2000)]
    names = [trial_name(at, Candidate.excluding(layers, layers[:at])) for at in range(2000)]
    assert len({name[:12] for name in names}) == 2000
    assert names[7] == "007 excl 7"
    assert trial_name(7, Candidate.of({"a": "int4", "b": "int8"})) == "007 mixed"


def test_names_sort_as_the_candidates_do() -> None:
    candidate = Candidate.excluding("ab", "a")
    names = [trial_name(index, candidate) for index in range(1000)]
    assert names == sorted(names)


def test_run_is_called_what_it_is_recommended_as() -> None:
    one, other = trial(3, accuracy_loss=0.0), trial(12, accuracy_loss=0.5)
    both = (Recommendation("accurate", one), Recommendation("balanced", one))
    front = Front(("accuracy_loss", "size_bytes"), (one, other), both, 0.5)

    def name(of: Any) -> str:
        held = {"mlflow.runName": trial_name(of.index, of.candidate)}
        return looks(of, front, held)["mlflow.runName"]

    assert name(one) == "003 accurate, balanced"
    assert name(other) == "012 front"
    assert name(trial(4, excluded=["a"])) == "004 excl 1"


def test_run_is_described_unless_a_person_did() -> None:
    front = ladder_front()
    trial = front.members[0]
    text = looks(trial, front, {})["mlflow.note.content"]
    assert text == described(trial) and "\n" not in text
    assert f"candidate {trial.index}" in text and "layers in float32" in text
    assert "mlflow.note.content" not in looks(trial, front, {"mlflow.note.content": "mine"})


def test_registered_model_has_a_page_where_there_is_one() -> None:
    front = ladder_front()
    pages = study_pages("1", "study", front, "seqto-a/b-cpu")
    assert pages["registered"] == "#/models/seqto-a%2Fb-cpu?workflowType=machine_learning"
    assert "registered" not in study_pages("1", "study", front)


def test_all_fronts_are_told_apart_by_model_device_and_quantization() -> None:
    state = unpacked(json.loads(experiment_tags()["mlflow.sharedViewState.seqto-fronts"])["state"])
    wanted = [f"tags.`seqto.{name}`" for name in ("model", "device", "quantization", "precisions")]
    assert state["selectedColumns"][:4] == wanted


def test_comparison_opens_on_loss_size_and_latency_of_the_front() -> None:
    front = ladder_front()
    page = study_pages("7", "abc", front)["compare"]
    key, value = list(study_views("abc", front).items())[1]
    assert f"viewStateShareKey={key.removeprefix('mlflow.sharedViewState.')}&" in page
    assert page.endswith("compareRunsMode=CHART") and len(page) < 300
    state = unpacked(value)
    assert "tags.\"seqto.pareto\" = 'true'" in unquote(state["searchFilter"])
    first, *planes = state["compareRunCharts"]
    assert first["type"] == "PARALLEL"
    assert set(first["selectedMetrics"]) == {"accuracy_loss", "size_ratio", "latency_ms"}
    assert [each["type"] for each in planes] == ["SCATTER"] * len(planes)
    assert len(value) < LONGEST_TAG


def test_all_pages_open_where_runs_are_shown() -> None:
    pages = study_pages("7", "study", ladder_front())
    assert all(page.startswith("#/") for page in pages.values()), "on any server, at any prefix"
    assert all("workflowType=machine_learning" in page for page in pages.values())
    # Neither may end a link in Markdown.
    assert not any(set(page) & set(" ()<>[]\"'") for page in pages.values())


def test_view_of_a_study_is_the_one_that_its_page_names() -> None:
    front = ladder_front()
    key, value = next(iter(study_views("abc", front).items()))
    assert key.removeprefix("mlflow.sharedViewState.") in study_pages("7", "abc", front)["charts"]
    state = unpacked(value)
    assert unquote(state["searchFilter"]) == "tags.\"mlflow.parentRunId\" = 'abc'"
    assert len(value) < LONGEST_TAG


@pytest.mark.parametrize(
    ("objectives", "columns", "planes"),
    [
        (
            ("accuracy_loss", "size_bytes"),
            ["accuracy_loss", "size_ratio", "latency_ms", "accuracy"],
            [("size_ratio", "accuracy_loss"), ("latency_ms", "accuracy_loss")],
        ),
        (
            ("latency_ms", "accuracy_loss"),
            ["latency_ms", "accuracy_loss", "size_ratio", "accuracy"],
            [("accuracy_loss", "latency_ms")],
        ),
    ],
)
def test_view_shows_the_objectives_first(
    objectives: tuple[str, ...], columns: list[str], planes: list[tuple[str, str]]
) -> None:
    state = unpacked(next(iter(study_views("abc", ladder_front(*objectives)).values())))
    metrics = [name for name in state["columnOrder"] if name.startswith("metrics")]
    assert metrics == [f"metrics.`{name}`" for name in columns]
    assert set(metrics) < set(state["selectedColumns"])
    assert state["orderByKey"] == metrics[0]
    charts = state["compareRunCharts"]
    scatter = [chart for chart in charts if chart["type"] == "SCATTER"]
    assert [(each["xaxis"]["key"], each["yaxis"]["key"]) for each in scatter] == planes
    assert len({chart["uuid"] for chart in charts}) == len(charts)


def test_view_leaves_out_what_was_not_measured() -> None:
    record = ladder_study(latency=False)
    front = find_front(record.trials, ("accuracy_loss", "size_bytes"), record.baseline)
    assert "latency_ms" not in json.dumps(unpacked(next(iter(study_views("abc", front).values()))))


def test_new_experiment_has_views_to_choose_from() -> None:
    tags = experiment_tags()
    views = [json.loads(value) for name, value in tags.items() if "sharedViewState" in name]
    assert {view["name"] for view in views} == {"seqto: studies", "seqto: all fronts"}
    assert all(unpacked(view["state"])["searchFilter"] for view in views)
    assert all(len(value) < LONGEST_TAG for value in tags.values())
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def test_views_of_all_studies_leave_out_what_few_measure() -> None:
    # One empty metric would empty MLflow's chart of all.
    tags = experiment_tags()
    views = [json.loads(value) for name, value in tags.items() if "seqto-fronts" in name]
    (shown,) = (json.dumps(unpacked(view["state"])) for view in views)
    assert "latency_ms" in shown
    assert "mean_iou" not in shown and "map_50" not in shown
