import math

import pytest
from studies import ladder_study, layer_scores, study, trial

from seqto.pareto.front import find_front
from seqto.report.info import (
    Point,
    axis,
    front_info,
    is_far,
    objectives_info,
    sensitivity_info,
    study_title,
)
from seqto.types import Layer, LayerScore, StudyRecord, TrialState

LOSS_SIZE = ("accuracy_loss", "size_bytes")
LAYERS = ("a", "b", "c", "d")


def hand_study() -> StudyRecord:
    return study(
        [
            trial(0, layers=LAYERS, accuracy_loss=0.10, size_bytes=300.0),
            trial(1, layers=LAYERS, excluded="a", accuracy_loss=0.02, size_bytes=500.0),
            trial(2, layers=LAYERS, excluded="b", accuracy_loss=0.06, size_bytes=600.0),
            trial(3, layers=LAYERS, excluded="abc", accuracy_loss=0.00, size_bytes=800.0),
            trial(4, layers=LAYERS, excluded="ab", state=TrialState.FAILED),
            trial(5, duplicate_of=0, accuracy_loss=0.10, size_bytes=300.0),
        ]
    )


def score(name: str, value: float, **details: float) -> LayerScore:
    return LayerScore(Layer(name, "Conv", 1), value, details)


def test_title_names_model_device_and_quantization() -> None:
    assert study_title(hand_study()) == "efficientnet-lite0 · cpu · static"
    assert study_title(study([], tags={})) == "study 0123456789abcdef"


def test_sensitivity_keeps_the_ranking_and_only_normalised_details() -> None:
    info = sensitivity_info(study([], scores=layer_scores(27)))
    assert [each.name for each in info.details] == ["qdq_err", "xmodel_err"]
    assert len(info.layers) == 27
    assert info.shares[0] == 1.0
    assert info.shares == tuple(score / info.scores[0] for score in info.scores)


def test_sensitivity_scales_negative_scores_and_leaves_gaps() -> None:
    rows = [score("a", 3.0, part=0.5), score("b", 1.0), score("c", -1.0, part=0.1)]
    info = sensitivity_info(study([], scores=rows))
    assert info.shares == (1.0, 0.5, 0.0)
    assert info.details[0].values[::2] == (0.5, 0.1)
    assert math.isnan(info.details[0].values[1])


def test_sensitivity_of_zero_scores_or_none() -> None:
    assert sensitivity_info(study([], scores=[score("a", 0.0), score("b", 0.0)])).shares == (0, 0)
    assert sensitivity_info(study([])).layers == ()


def test_sensitivity_leaves_out_a_detail_that_repeats_the_score() -> None:
    rows = [score("a", 0.5, kl=0.5), score("b", 0.1, kl=0.1)]
    assert sensitivity_info(study([], scores=rows)).details == ()


def test_objectives_span_the_complete_trials_in_percent() -> None:
    record = hand_study()
    info = objectives_info(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert info.places == (0, 1, 1, 3)
    assert info.across == "layers left in float32, of 4"
    loss, size = info.lines
    assert loss.percents == pytest.approx((100, 20, 60, 0))
    assert size.percents == pytest.approx((0, 40, 60, 100))
    assert [count for count, _ in loss.trend] == [0, 1, 3]
    assert loss.trend[1][1] == pytest.approx(40)
    assert (loss.label, loss.best, loss.worst) == ("accuracy loss", "0 %", "10 %")
    assert (size.best, size.worst) == ("30 %", "80 %")


def test_objectives_mark_each_recommended_trial_once() -> None:
    record = hand_study()
    info = objectives_info(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert [(mark.label, mark.place) for mark in info.marks] == [
        ("balanced #1", 1),
        ("accurate #3", 3),
        ("small #0", 0),
    ]
    assert info.marks[0].percents == pytest.approx((20, 40))


def test_objectives_that_never_change_are_all_best() -> None:
    record = study([trial(at, accuracy_loss=0.0, size_bytes=float(at)) for at in range(3)])
    info = objectives_info(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert info.lines[0].percents == (0, 0, 0)
    assert [mark.label for mark in info.marks] == ["balanced, accurate, small #0"]


def test_front_shows_size_in_percent_of_float_against_the_loss() -> None:
    record = hand_study()
    info = front_info(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert (info.x.title, info.y.title) == ("size (% of the float model)", "accuracy loss (%)")
    assert info.members == (Point(80, 0), Point(50, 2), Point(30, 10))
    assert info.steps == (Point(30, 10), Point(50, 2), Point(80, 0))
    assert len(info.trials) == 4
    assert info.recommended[0] == Point(50, 2, "balanced #1")
    assert info.baseline == Point(100, 0, "float model")


def test_front_of_three_objectives_steps_only_over_the_best_in_the_plane() -> None:
    record = ladder_study(27)
    names = ("latency_ms", "accuracy_loss", "size_bytes")
    info = front_info(record, find_front(record.trials, names, record.baseline))
    assert (info.x.title, info.y.title) == ("latency (ms)", "accuracy loss (%)")
    assert info.baseline == Point(12.0, 0.0, "float model")
    assert 1 < len(info.steps) < len(info.members)
    heights = [point.y for point in info.steps]
    assert heights == sorted(heights, reverse=True)


def test_front_of_other_objectives_uses_the_first_two() -> None:
    record = study([trial(0, kl=0.5, peak=3.0), trial(1, kl=0.2, peak=4.0)])
    info = front_info(record, find_front(record.trials, ("kl", "peak"), record.baseline))
    assert (info.x.title, info.y.title) == ("kl", "peak")
    assert info.baseline is None


def test_front_of_one_objective_lies_over_the_excluded_layers() -> None:
    record = hand_study()
    info = front_info(record, find_front(record.trials, ("accuracy_loss",), record.baseline))
    assert info.x.label == "excluded layers"
    assert info.members == (Point(3, 0),)


def test_size_without_a_float_figure_is_in_megabytes() -> None:
    shown = axis("size_bytes", {})
    assert (shown.unit, shown.baseline) == ("MB", None)
    assert shown.text(5_020_000 * shown.factor) == "5.02 MB"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (0.0021, "2.1e-03 %"), (0.333, "0.33 %"), (8.4, "8.4 %"), (100.0, "100 %")],
)
def test_values_are_written_short(value: float, text: str) -> None:
    assert axis("accuracy_loss", {}).text(value) == text


def test_candidates_that_leave_equally_many_layers_stand_side_by_side() -> None:
    sizes = (300.0, 100.0, 200.0)
    record = study([trial(at, accuracy_loss=0.0, size_bytes=size) for at, size in enumerate(sizes)])
    info = objectives_info(record, find_front(record.trials, LOSS_SIZE, record.baseline))
    assert info.places == (0, 1, 2) and info.across == "candidates, the smallest first"
    assert info.names == ("#1", "#2", "#0")
    assert info.lines[1].percents == pytest.approx((0, 50, 100))


def test_harm_is_ranked_on_a_logarithmic_axis_by_the_layers_that_matter() -> None:
    rows = [score(f"l{at}", 0.5**at, divergence=0.5**at) for at in range(40)]
    info = sensitivity_info(study([], scores=rows))
    assert info.logarithmic and info.ranked == "harm"
    # Those with a hundredth of the largest would be seven.
    assert info.matter == 8
    flat = [score(f"l{at}", 1.0, divergence_per_byte=1.0, divergence=0.1) for at in range(40)]
    info = sensitivity_info(study([], scores=flat))
    assert (info.logarithmic, info.ranked, info.matter) == (False, "harm per byte saved", 30)


@pytest.mark.parametrize(("own", "far"), [(100.0, True), (40.0, False), (None, False)])
def test_a_float_model_that_would_squeeze_the_front_is_far(own: float | None, far: bool) -> None:
    assert is_far(own, [10.0, 20.0]) is far
