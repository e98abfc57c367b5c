import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from studies import TAGS, ladder_study, layer_scores, random_study, study, trial

from seqto.pareto.front import find_front
from seqto.report.answer import answer
from seqto.report.page_links import PageLinks
from seqto.report.study_page import (
    choices,
    front_chart,
    page_data,
    study_page,
    write_study_page,
)
from seqto.types import (
    CODED_STEPS,
    CONSTRAINT,
    Candidate,
    Layer,
    LayerScore,
    StudyRecord,
    TrialState,
)

LOSS_SIZE = ("accuracy_loss", "size_bytes")
EVIL = "</script><img src=x onerror=alert(1)>"


def figures(loss: float, size: float) -> dict[str, float]:
    ends = {"accuracy_loss_low": loss / 2, "accuracy_loss_high": loss * 2}
    return {"accuracy_loss": loss, "size_bytes": size, "size_ratio": size / 1000, **ends}


def hand_study(**tags: str) -> StudyRecord:
    layers = ("a", "b", EVIL)
    return study(
        [
            trial(0, layers=layers, **figures(0.1, 300)),
            trial(1, layers=layers, excluded=["a"], **figures(0.02, 500)),
            trial(2, layers=layers, excluded=["b"], **figures(0.06, 600)),
            trial(3, layers=layers, excluded=["a", EVIL], **figures(0.0, 800)),
            trial(4, layers=layers, excluded=["b", EVIL], state=TrialState.FAILED, failure=EVIL),
            trial(5, layers=layers, duplicate_of=0, **figures(0.1, 300)),
        ],
        scores=layer_scores(3),
        tags={**TAGS, **tags},
    )


def made(record: StudyRecord, **others: Any) -> str:
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    values: dict[str, Any] = {"environment": {"python": "3.11"}, "pictures": {}, **others}
    return study_page(record, front, **values)


def test_the_answer_is_the_balanced_one() -> None:
    record = hand_study()
    found = answer(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert found.startswith("Take #1 (balanced): 50 % of the size, differs from the float model")


@pytest.mark.parametrize(("limit", "best"), [(0.2, 0), (0.08, 1), (0.0, 3)])
def test_the_answer_meets_the_constraint(limit: float, best: int) -> None:
    record = hand_study(**{CONSTRAINT: json.dumps({"accuracy_loss": limit})})
    found = answer(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert found.startswith(f"Take #{best}, the best with accuracy_loss <= {limit:g}: ")


def test_an_answer_that_nothing_meets_says_so() -> None:
    record = hand_study(**{CONSTRAINT: json.dumps({"accuracy_loss": 0.01})})
    few = replace(record, trials=record.trials[:3])
    found = answer(few, find_front(few.trials, LOSS_SIZE, few.baseline))
    assert found.startswith("No candidate has accuracy_loss <= 0.01; the nearest is #1:")


def test_the_chart_has_all_that_was_measured_once() -> None:
    record = hand_study()
    chart = front_chart(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    (series,) = chart["series"]
    kinds = {dot["title"]: dot["kind"] for dot in series["dots"]}
    assert kinds == {
        "#0 small": "front",
        "#1 balanced": "front",
        "#2": "other",
        "#3 accurate": "front",
        "float model": "float",
    }
    dot = series["dots"][1]
    assert (dot["x"], dot["y"], dot["low"], dot["high"]) == ((50.0,), 2.0, 1.0, 4.0)
    assert ("loss", "2.00 % (95 %: 1.00 to 4.00 %)") in dot["facts"]
    assert [axis["title"] for axis in chart["x"]] == ["size (% of the float model)"]
    json.dumps(chart, allow_nan=False)


def test_latency_is_another_axis_where_it_was_measured() -> None:
    record = ladder_study(9)
    chart = front_chart(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert [axis["title"] for axis in chart["x"]] == ["size (% of the float model)", "latency (ms)"]
    assert len(chart["series"][0]["dots"][0]["x"]) == 2


def test_layers_are_signs_of_the_precisions() -> None:
    record = hand_study()
    data = page_data(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert data["names"] == sorted(["a", "b", EVIL])
    assert data["precisions"] == ["int8", "float32"]
    at = data["names"].index("a")
    assert {key: digits[at] for key, digits in data["layers"].items()} == {
        **{"0": "0", "1": "1", "2": "0"},
        **{"3": "1", "4": "0", "5": "0"},
    }


def test_nothing_of_a_model_is_markup() -> None:
    rows = [{"layer": EVIL, "op_type": EVIL, "kind": EVIL, "failure": EVIL, "found_by": EVIL}]
    exclusions = {"layers": [{**rows[0], "attempts": [1, 2]}]}
    record = hand_study(**{"seqto.model": EVIL, "seqto.search": EVIL})
    scheme = {
        **{"scheme": EVIL, "divergence": 0.5, "exact_divergence": 0.01, "size_bytes": 250},
        **{"size_ratio": 0.25, "latency_ms": 2.0, "latency_p10_ms": 1.5, "base": True},
    }
    record = replace(record, tables={"schemes": [scheme]})
    page = made(record, environment={EVIL: EVIL}, exclusions=exclusions)
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("&lt;/script&gt;&lt;img") >= 10
    for title in ("cannot run quantized", "Full quantizations compared first", "Failures"):
        assert title in page


def test_what_a_study_lacks_is_left_out() -> None:
    page = made(study([trial(0, accuracy_loss=0.0, size_bytes=10.0)]))
    for title in ("Failures", "Full quantizations", "cannot run", "Sensitivity", "figures"):
        assert title not in page
    assert "latency" not in re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)


def test_failed_ones_and_duplicates_are_in_the_table() -> None:
    page = made(hand_study())
    assert "same model as #0" in page and page.count("failed") >= 2


def test_precisions_and_schemes_are_told() -> None:
    assert '<button type="button">in float32</button>' in made(hand_study())
    mixed = Candidate.of({"a": "int4", "b": "float16"}, "7 bits per tensor")
    one = replace(trial(0, **figures(0.1, 300)), candidate=mixed)
    page = made(study([one]))
    assert '<button type="button">layers</button>' in page and "1 int4, 1 float16" in page
    assert "<small>7 bits per tensor</small>" in page


def test_each_recommended_one_has_its_commands() -> None:
    record = hand_study()
    found = choices(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert [each.index for each in found] == [1, 3, 0]
    assert found[0].rebuild.endswith("candidate.from_run=run-1")
    assert 'load_model("runs:/run-1/model")' in found[0].by_mlflow
    assert 'InferenceSession("balanced.onnx"' in found[0].by_onnxruntime
    assert (found[0].run, found[0].file) == ("", "")


def test_runs_and_files_are_linked_where_they_are_known() -> None:
    record = hand_study()
    links = PageLinks({"study-1": "http://x/#/s", "run-1": "http://x/#/c"}, {"balanced": "b.onnx"})
    page = made(record, links=links)
    assert page.count('href="http://x/#/s"') == 2 and page.count('href="http://x/#/c"') == 2
    assert '<a href="b.onnx" download>' in page
    assert "href" not in made(record)


def test_the_strip_has_layers_in_graph_order_and_candidates_by_size() -> None:
    record = hand_study()
    scores = [
        LayerScore(Layer(name, "Conv", 4, position=at), 10.0**-at)
        for at, name in enumerate(("b", EVIL, "a"))
    ]
    record = replace(record, scores=tuple(scores))
    data = page_data(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert data["names"] == ["b", EVIL, "a"]
    rows = data["strip"]["rows"]
    assert [row["candidate"] for row in rows] == ["0", "1", "2", "3"], "no failures, no duplicates"
    assert [row["front"] for row in rows] == [True, True, False, True]
    assert [fact["harm"] for fact in data["strip"]["facts"]] == [1.0, 0.667, 0.333]


@pytest.mark.parametrize("count", [60, 61, 2000])
@pytest.mark.parametrize("members", [3, 60, 61, 1000])
def test_a_page_of_many_candidates_stays_short(count: int, members: int) -> None:
    # Those beyond the front are all alike, and worse.
    on_front = min(members, count)
    trials = [
        trial(at, accuracy_loss=0.5 - at / 4000, size_bytes=300.0 + at)
        if at < on_front
        else trial(at, accuracy_loss=0.9, size_bytes=9000.0)
        for at in range(count)
    ]
    record = study(trials, scores=layer_scores(3))
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    assert len(front.members) == on_front
    rows = page_data(record, front)["strip"]["rows"]
    shown = {int(row["candidate"]) for row in rows}
    assert {each.trial.index for each in front.recommended} <= shown
    page = made(record)
    tall = 'class="scroll tall">\n<table class="sortable" id="candidates"' in page
    if count <= 60:
        assert (len(rows), tall) == (count, False)
        assert "one row per candidate, the smallest" in page
        return
    assert tall
    if on_front <= 60:
        assert shown == set(range(on_front))
        assert "one row per candidate of the front, the smallest" in page
    else:
        assert 50 <= len(rows) <= 60 and all(row["front"] for row in rows)
        assert f"one row per candidate ({len(rows)} of the {on_front} on the front)" in page


def test_more_precisions_than_digits_have_a_sign_each() -> None:
    names = [f"l{at:02d}" for at in range(len(CODED_STEPS))]
    mixed = Candidate.of({**dict(zip(names, CODED_STEPS, strict=True)), "z": "float32"})
    each = replace(trial(0, accuracy_loss=0.1, size_bytes=300.0), candidate=mixed)
    record = study([each])
    data = page_data(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert data["precisions"] == [*CODED_STEPS, "float32"]
    assert data["layers"]["0"] == "0123456789abcdefghij"
    assert data["families"] == ["coded"] * len(CODED_STEPS) + ["float32"]


def test_a_float_model_far_away_is_a_mark_at_the_edge() -> None:
    record = study([trial(at, **figures(0.1 / (at + 1), 100 + at)) for at in range(3)])
    chart = front_chart(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert chart["x"][0]["range"][1] < 20
    (ground,) = [dot for dot in chart["series"][0]["dots"] if dot["kind"] == "float"]
    assert ground["beyond"] == ("float: 100 % \u2192",)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("divergence_per_byte", "is quantized, per byte that this saves"),
        ("divergence", "is quantized, as a share"),
        ("qdq_err", None),
    ],
)
def test_the_score_of_a_divergence_is_explained(own: str, said: str | None) -> None:
    record = hand_study()
    names = {"divergence": 0.7, "divergence_per_byte": 0.6}
    scores = [
        replace(each, details={**names, own: each.score, "kl": 2.0}) for each in record.scores
    ]
    text = made(replace(record, scores=tuple(scores)))
    assert ("The score is the divergence" in text) is bool(said)
    assert (said or "the most hurt first") in text


def test_a_large_study_stays_small(tmp_path: Path) -> None:
    record = random_study(layers=300, candidates=200)
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    picture = tmp_path / "sensitivity.png"
    Image.new("RGB", (10, 10)).save(picture)
    path = tmp_path / "new" / "report.html"
    write_study_page(path, record, front, {}, {picture.name: picture})
    assert path.stat().st_size < 600_000
    assert "data:image/png;base64,iVBOR" in path.read_text()


def test_coded_layers_are_counted_whatever_their_step() -> None:
    mixed = {"a": "coded_0.5", "b": "coded_0.18", "c": "float16"}
    each = replace(trial(0, accuracy_loss=0.1, size_bytes=300.0), candidate=Candidate.of(mixed))
    record = study([each])
    page = study_page(record, find_front(record.trials, LOSS_SIZE, record.baseline), {}, {})
    assert "2 coded, 1 float16" in page
