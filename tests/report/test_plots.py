import dataclasses
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from PIL import Image
from studies import ladder_study, layer_scores, random_study, study, trial

from seqto.pareto.front import find_front
from seqto.report import plots
from seqto.report.info import front_info, objectives_info, sensitivity_info
from seqto.types import Layer, LayerScore, StudyRecord

LOSS_SIZE = ("accuracy_loss", "size_bytes")


def one_trial() -> StudyRecord:
    return study([trial(0, accuracy_loss=0.01, size_bytes=300.0)], scores=layer_scores(1))


def no_loss() -> StudyRecord:
    record = ladder_study(6)
    trials = [
        dataclasses.replace(each, metrics={**each.metrics, "accuracy_loss": 0.0})
        for each in record.trials
    ]
    return dataclasses.replace(record, trials=tuple(trials))


def with_duplicate_and_outlier() -> StudyRecord:
    record = ladder_study(6)
    first = record.trials[0]
    more = (
        dataclasses.replace(first, id="again", index=90, duplicate_of=0),
        trial(91, layers=["$a_1$"], excluded=["$a_1$"], accuracy_loss=1.0, size_bytes=1e7),
    )
    return dataclasses.replace(record, trials=record.trials + more)


def no_baseline() -> StudyRecord:
    return dataclasses.replace(ladder_study(6), baseline={})


STUDIES = {
    build.__name__: build
    for build in (one_trial, no_loss, with_duplicate_and_outlier, no_baseline, ladder_study)
}


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", STUDIES)
def test_objectives_and_front_are_drawn(name: str, tmp_path: Path) -> None:
    record = STUDIES[name]()
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    plots.draw_objectives(objectives_info(record, front), tmp_path / "objectives.png")
    plots.draw_front(front_info(record, front), tmp_path / "front.png")
    for each in ("objectives.png", "front.png"):
        pixels = picture(tmp_path / each)
        assert pixels.shape[0] > 500 and pixels.shape[1] > 800
        assert len(np.unique(pixels @ np.array([1, 256, 65536]))) > 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["front.png", "objectives.png"]


@pytest.mark.parametrize("layers", [0, 1, 27, 60])
def test_sensitivity_grows_with_the_layers_that_matter(layers: int, tmp_path: Path) -> None:
    info = sensitivity_info(study([], scores=layer_scores(layers)))
    plots.draw_sensitivity(info, tmp_path / "s.png")
    height, width, _ = picture(tmp_path / "s.png").shape
    assert 30 * info.matter < height < 30 * max(5, info.matter) + 300
    assert 600 < width < 1300


def test_no_more_layers_than_a_person_reads(drawn: list[Figure], tmp_path: Path) -> None:
    info = sensitivity_info(study([], scores=layer_scores(230)))
    plots.draw_sensitivity(info, tmp_path / "s.png")
    assert len(drawn[0].axes[0].get_yticklabels()) == 30
    assert "The 30 of 230 layers that matter most" in texts(drawn[0])[-1]


def test_harms_have_a_logarithmic_axis_with_a_label(drawn: list[Figure], tmp_path: Path) -> None:
    rows = [
        LayerScore(Layer(f"l{at}", "Conv", 1), 0.5**at, {"divergence": 0.5**at}) for at in range(40)
    ]
    info = sensitivity_info(study([], scores=rows))
    plots.draw_sensitivity(info, tmp_path / "s.png")
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "harm (logarithmic)"
    assert len(axes.get_yticklabels()) == 8, "only those that matter by name"
    title, subtitle = texts(drawn[0])[-2:]
    assert title.endswith("harm, by layer")
    assert "the other 32 do 0.39 % of all harm" in subtitle
    drawn[0].canvas.draw()
    assert not any("$" in each.get_text() for each in axes.get_xticklabels())


def test_no_line_joins_what_was_not_measured(drawn: list[Figure], tmp_path: Path) -> None:
    layers = "abcdefgh"
    left = ("", "a", "ab", "abcdef")
    trials = [
        trial(at, layers=layers, excluded=each, accuracy_loss=0.1 - at / 100, size_bytes=100.0 + at)
        for at, each in enumerate(left)
    ]
    record = study(trials)
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    plots.draw_objectives(objectives_info(record, front), tmp_path / "o.png")
    stretches = [
        list(line.get_xdata()) for line in drawn[0].axes[0].lines if line.get_marker() == "o"
    ]
    assert stretches == [[0, 1, 2], [6], [0, 1, 2], [6]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep the figures instead of writing them."""
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    return figures


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objectives", [LOSS_SIZE, ("accuracy_loss", "latency_ms", "size_bytes")])
def test_front_labels_neither_overlap_nor_leave_the_axes(
    drawn: list[Figure], objectives: tuple[str, ...], seed: int, tmp_path: Path
) -> None:
    record = random_study(30, 60, seed=seed) if seed % 2 else ladder_study(27, seed=seed)
    front = find_front(record.trials, objectives, record.baseline, top_k=4)
    plots.draw_front(front_info(record, front), tmp_path / "front.png")
    axes = drawn[0].axes[0]
    renderer = drawn[0].canvas.get_renderer()
    labels = [text for text in axes.texts if "#" in text.get_text()]
    labels += [text for text in axes.texts if text.get_text() == "float model"]
    boxes = [Text.get_window_extent(label, renderer) for label in labels]
    assert len(boxes) >= 3
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    inside = axes.bbox
    assert all(box.x0 >= inside.x0 and box.x1 <= inside.x1 for box in boxes)
    assert all(box.y0 >= inside.y0 and box.y1 <= inside.y1 for box in boxes)


def test_objective_marks_at_one_place_are_stacked(drawn: list[Figure], tmp_path: Path) -> None:
    record = study([trial(at, accuracy_loss=at / 90, size_bytes=9.0 - at) for at in range(3)])
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    plots.draw_objectives(objectives_info(record, front), tmp_path / "o.png")
    renderer = drawn[0].canvas.get_renderer()
    marks = [text for text in drawn[0].axes[0].texts if "#" in text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in marks if isinstance(text, Annotation)]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_title_and_dollar_signs_are_drawn_as_they_are(drawn: list[Figure], tmp_path: Path) -> None:
    record = dataclasses.replace(one_trial(), tags={"seqto.model": "$x_1$"})
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    plots.draw_front(front_info(record, front), tmp_path / "front.png")
    title = next(text for text in drawn[0].axes[0].texts if text.get_text() == "$x_1$")
    assert title.get_parse_math() is False


def test_outliers_do_not_squeeze_the_front(drawn: list[Figure], tmp_path: Path) -> None:
    record = with_duplicate_and_outlier()
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    plots.draw_front(front_info(record, front), tmp_path / "front.png")
    assert drawn[0].axes[0].get_ylim()[1] < 20
    assert any("1 beyond the axes" in text for text in texts(drawn[0]))


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    plots.draw_sensitivity(sensitivity_info(one_trial()), tmp_path / "s.png")
    assert dict(matplotlib.rcParams) == before


def test_long_names_are_cut_where_they_stay_distinct() -> None:
    names = [f"/model/features/blocks.{at}/expand/pointwise/Conv" for at in range(12)]
    short = plots.shortened([*names, "/fc/Gemm"], 30)
    assert len(set(short)) == 13
    assert max(map(len, short)) == 30
    assert short[-1] == "/fc/Gemm"
    assert all("…" in name and not name.endswith("…") for name in short[:-1])
