"""Detection: outputs of several layouts, what is lost, and what is refused."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from detector_outputs import (
    CLASSES,
    anchors,
    by_centres,
    efficient_nms,
    objects,
    rows,
    torchvision,
    yolov5,
    yolov8,
)

from seqto.errors import ConfigError, DatasetError, MetricError, ModelError, SeqtoError
from seqto.protocols import Task
from seqto.tasks.boxes import Boxes
from seqto.tasks.detection import Detection
from seqto.types import NEGLIGIBLE, RUINED, Outputs, Targets

FOUND = objects()
COUNT = sum(map(len, FOUND))


def logits(probabilities: np.ndarray) -> np.ndarray:
    """Return what a sigmoid turns into probabilities."""
    return np.log(probabilities) - np.log1p(-probabilities)


def decoded(sample: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decode rows, as a user's own function."""
    values = sample["mine"]
    return values[:, :4], values[:, 4], values[:, 5]


def pair(found: list[Boxes]) -> dict[str, np.ndarray]:
    """Return boxes and scores."""
    return dict(zip(("boxes", "scores"), anchors(found), strict=True))


def yolov7(found: list[Boxes]) -> np.ndarray:
    """Return rows of image, x1, y1, x2, y2, class, score."""
    values = rows(found)
    return np.concatenate([values[..., :1] * 0, values[..., [0, 1, 2, 3, 5, 4]]], axis=2)


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "yolov8": (lambda found: {"output0": yolov8(found)}, {}),
    "yolov8 with a batch axis": (lambda found: {"output0": yolov8(found)[:, None]}, {}),
    "yolov8 with mask coefficients": (
        lambda found: {"o": np.concatenate([yolov8(found), 9 - yolov8(found)], axis=1)},
        {"classes": CLASSES},
    ),
    "yolov5": (lambda found: {"output": yolov5(found)}, {}),
    "RT-DETR": (
        lambda found: {"output0": yolov8(found).transpose(0, 2, 1)},
        {"objectness": False},
    ),
    "boxes and scores": (pair, {}),
    "boxes by centres": (
        lambda found: {"a": by_centres(anchors(found)[0])[:, :, None], "b": anchors(found)[1]},
        {"box_format": "cxcywh"},
    ),
    "logits": (
        lambda found: {"a": anchors(found)[0], "b": logits(anchors(found)[1])},
        {"activation": "sigmoid"},
    ),
    "rows": (lambda found: {"dets": rows(found)}, {}),
    "ragged rows": (
        lambda found: {"dets": tuple(each[each[:, 4] > 0] for each in rows(found))},
        {},
    ),
    "rows with the image in front": (lambda found: {"output": yolov7(found)}, {}),
    "OpenVINO": (
        lambda found: {"o": yolov7(found)[..., [0, 5, 6, 1, 2, 3, 4]]},
        {"columns": ["image", "class", "score", "x1", "y1", "x2", "y2"]},
    ),
    "torchvision": (torchvision, {}),
    "EfficientNMS": (efficient_nms, {}),
    "the user's own": (lambda found: {"mine": rows(found)}, {"decode": decoded}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Any, Detection]:
    write, keys = KINDS[request.param]
    return write, Detection(**keys)


def moved(found: list[Boxes], by: float) -> list[Boxes]:
    """Return boxes that are shifted to the right."""
    return [replace(each, corners=each.corners + np.array([by, 0, by, 0])) for each in found]


def test_equal_outputs_lose_nothing(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    reference = write(FOUND)
    assert (task.metric.losses(reference, write(FOUND)) == 0).all()
    assert (task.harm(reference).per_sample(write(FOUND)) == 0).all()


def test_every_layout_loses_the_same(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    # Of the first sample a box is lost, of the second one all have other classes.
    worse = [FOUND[0].take(np.arange(len(FOUND[0]) - 1)), replace_classes(FOUND[1]), *FOUND[2:]]
    losses = task.metric.losses(write(FOUND), write(worse))
    count = len(FOUND[0])
    assert count > 1
    assert losses == pytest.approx([1 - 2 * (count - 1) / (2 * count - 1), 1, *[0] * 18])


def replace_classes(boxes: Boxes) -> Boxes:
    return replace(boxes, classes=(boxes.classes + 1) % CLASSES)


def test_boxes_that_move_too_far_are_lost(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    near, far = (
        task.metric.losses(write(FOUND), write(moved(FOUND, by))).mean() for by in (4.0, 60.0)
    )
    assert near == 0
    assert far == 1


def test_losing_all_boxes_is_ruin_and_little_noise_is_not(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    reference = write(FOUND)
    faint = write([replace(each, scores=each.scores * 0.02) for each in FOUND])
    assert (task.metric.losses(reference, faint) == 1).all()
    harm = task.harm(reference)
    assert harm.per_sample(faint).mean() > 10 * RUINED
    near = write([replace(each, scores=each.scores * 0.999) for each in moved(FOUND, 0.05)])
    assert 0 < harm.per_sample(near).mean() < NEGLIGIBLE / 10


def test_harm_grows_with_the_error(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    harm = task.harm(write(FOUND))
    by_place = [harm.per_sample(write(moved(FOUND, by))).mean() for by in (0.1, 1, 5, 20, 90)]
    assert by_place == sorted(by_place)
    assert by_place[-1] > RUINED > by_place[1]
    shares = (0.99, 0.9, 0.7, 0.3, 0.05)
    weaker = [[replace(each, scores=each.scores * share) for each in FOUND] for share in shares]
    by_score = [harm.per_sample(write(each)).mean() for each in weaker]
    assert by_score == sorted(by_score)


def test_a_candidate_that_is_not_a_number_is_lost(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    reference, outputs = write(FOUND), write(FOUND)
    for entries in outputs.values():
        if entries[3].dtype.kind == "f":
            entries[3][...] = np.nan
    assert task.metric.losses(reference, outputs).tolist() == [*[0] * 3, 1, *[0] * 16]
    harms = task.harm(reference).per_sample(outputs)
    assert np.isfinite(harms).all() and harms[3] > RUINED and harms.sum() == harms[3]
    targets = [np.column_stack([each.classes, each.corners]) for each in FOUND]
    assert 0 < task.scores(outputs, targets)["map"].value < 1


def test_precision_is_perfect_with_the_targets_as_boxes(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    targets = [{"boxes": each.corners, "classes": each.classes} for each in FOUND]
    scores = task.scores(write(FOUND), targets)
    assert list(scores) == ["map_50", "map"]
    assert scores["map_50"].value == pytest.approx(1, abs=0.02)
    half = [each.take(np.arange(0, len(each), 2)) for each in FOUND]
    fewer = task.scores(write(half), targets)["map_50"]
    assert 0.3 < fewer.low < fewer.value < fewer.high < 0.9


def test_it_can_be_pickled(kind: tuple[Any, Detection]) -> None:
    write, task = kind
    assert pickle.loads(pickle.dumps(task)) == task
    harm = pickle.loads(pickle.dumps(task.harm(write(FOUND))))
    assert (harm.per_sample(write(moved(FOUND, 5))) > 0).all()


class TestYolo:
    noise = (0.001, 0.05, 1.0)

    @pytest.fixture
    def task(self) -> Task:
        return Detection()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"output0": yolov8(FOUND)}

    @pytest.fixture
    def targets(self) -> Targets:
        return [np.column_stack([each.classes, each.corners]) for each in FOUND]

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        return [{"wrong": np.zeros((20, *shape))} for shape in ((10,), (3, 8, 8), (4, 90), (9, 9))]

    def test_misfits_are_refused(self, task: Task, misfits: list[Outputs]) -> None:
        for outputs in misfits:
            with pytest.raises(ModelError, match=r"'wrong' has the shape \["):
                task.harm(outputs)


@pytest.mark.parametrize(
    ("outputs", "keys", "said"),
    [
        ({"o": yolov8(FOUND) * 0.2}, {}, "finds no box with a score of at least 0.25 in any of 20"),
        ({"o": logits(yolov8(FOUND).clip(0.01, 0.99))}, {}, "probabilities are expected"),
        ({"o": yolov8(FOUND)}, {"channels": "last"}, "probabilities are expected"),
        # Read without its objectness, each anchor of YOLOv5 is sure of some class.
        ({"o": yolov5(FOUND)}, {"objectness": False}, "anchors of the model's outputs"),
        (
            {"o": yolov8(FOUND).transpose(0, 2, 1)},
            {"layout": "yolo"},
            "not like an objectness.*task.objectness",
        ),
        ({"o": yolov5(FOUND).transpose(0, 2, 1)}, {}, "like an objectness.*task.objectness"),
        (
            {"a": by_centres(anchors(FOUND)[0]), "b": anchors(FOUND)[1]},
            {},
            "negative width or height.*task.box_format",
        ),
        (
            {"a": anchors(FOUND)[0], "b": 1 - anchors(FOUND)[1]},
            {},
            "anchors of the model's outputs.*task.background",
        ),
        ({"o": rows(FOUND)[..., [0, 1, 2, 3, 5, 4]]}, {}, "no whole numbers.*task.columns"),
        ({"a": anchors(FOUND)[0], "b": anchors(FOUND)[0]}, {}, "which one holds the boxes"),
        ({"a": np.ones((20, 5, 4)), "b": np.ones((20, 5)), "c": np.ones((20, 5))}, {}, "labels"),
        ({"a": np.ones((20, 3, 8, 8)), "b": np.ones((20, 3, 4, 4))}, {}, "task.decode"),
        ({"o": rows(FOUND)}, {"layout": "nms", "classes": 3}, "task.classes says nothing of"),
        ({"o": yolov8(FOUND)}, {"boxes_output": "out"}, "names no output"),
        ({"o": yolov8(FOUND)}, {"classes": 4}, "room for 3 classes"),
        ({"o": yolov8(FOUND)}, {"background": 3}, "task.background=3 is not one of"),
        ({"o": rows(FOUND)}, {"columns": ["x1", "score"]}, "Name each of its 6 columns"),
        ({"o": yolov8(FOUND)}, {"layout": "boxes_scores"}, "only output .* cannot hold the boxes"),
        ({"o": yolov8(FOUND)}, {"layout": "nms"}, "only output .* cannot hold the boxes"),
    ],
)
def test_what_is_unclear_or_wrong_is_refused(
    outputs: Outputs, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(SeqtoError, match=said):
        Detection(**keys).metric.losses(outputs, outputs)


def test_of_few_boxes_all_anchors_tell_their_format() -> None:
    # As DETR writes them, of which the usual format of pairs makes boxes with negative sizes.
    boxes, scores = anchors(FOUND)
    scores[1:] = 0
    outputs = {"pred_boxes": by_centres(boxes), "scores": scores}
    with pytest.raises(ModelError, match="negative width or height.*task.box_format"):
        Detection().metric.losses(outputs, outputs)
    assert not Detection(box_format="cxcywh").metric.losses(outputs, outputs).any()


def test_the_background_is_left_out() -> None:
    boxes, scores = anchors(FOUND)
    nothing = 1 - scores.sum(axis=2, keepdims=True).clip(0, 1)
    for place, order in ((0, [3, 0, 1, 2]), (-1, [0, 1, 2, 3])):
        written = {"boxes": boxes, "scores": np.concatenate([scores, nothing], axis=2)[..., order]}
        task = Detection(background=place)
        found = list(task.reading(written).all_boxes(written))
        assert sum(len(each) for each in found if each is not None) == COUNT


def test_a_float_model_that_is_not_a_number_loses_nothing_there() -> None:
    reference = {"o": yolov8(FOUND)}
    reference["o"][2] = np.nan
    task = Detection()
    assert task.metric.losses(reference, {"o": yolov8(FOUND)}).tolist() == [0] * 20
    assert task.harm(reference).per_sample({"o": yolov8(FOUND)}).tolist() == [0] * 20


def test_samples_without_boxes_lose_by_boxes_that_are_not_there() -> None:
    nothing = FOUND[0].take(np.arange(0))
    reference = {"o": yolov8([nothing, *FOUND[1:]])}
    assert Detection().metric.losses(reference, reference)[0] == 0
    assert Detection().metric.losses(reference, {"o": yolov8(FOUND)})[0] == 1


def test_one_class_is_enough() -> None:
    single = [replace(each, classes=each.classes * 0) for each in FOUND]
    outputs = {"o": yolov8(single)[:, :5]}
    assert outputs["o"].shape[1] == 5
    task = Detection()
    assert task.metric.losses(outputs, {"o": outputs["o"] * 0.5}).mean() > 0.2
    scores = task.scores(outputs, [np.column_stack([b.classes, b.corners]) for b in single])
    assert scores["map_50"].value > 0.98


def test_int8_scores_may_be_rounded_to_more_than_1() -> None:
    # One scale for coordinates and scores: steps of more than 1.
    reference = {"o": yolov8(FOUND)}
    outputs = {"o": np.round(reference["o"] / 1.4) * 1.4}
    losses, harms = (
        Detection().metric.losses(reference, outputs),
        Detection().harm(reference).per_sample(outputs),
    )
    assert 0 < losses.mean() <= 1
    assert harms.mean() > RUINED


class TestTargets:
    @pytest.mark.parametrize(
        ("target", "said"),
        [
            (np.zeros((2, 4)), r"its shape is \[2, 4\]"),
            ({"boxes": [[0, 0, 1, 1]]}, "KeyError: 'classes'"),
            ({"boxes": [[0, 0, 1, 1]], "classes": [0, 1]}, "cannot be read"),
            ([[0, 50, 60, 20, 20]], "negative width or height"),
            ([[0.5, 0, 0, 9, 9]], "no whole numbers"),
            ([[3, 0, 0, 9, 9]], "class 3, but the model has the classes 0 to 2"),
            ("cat", "cannot be read"),
        ],
    )
    def test_what_is_no_target_is_refused(self, target: Any, said: str) -> None:
        targets = [np.column_stack([each.classes, each.corners]) for each in FOUND]
        with pytest.raises(DatasetError, match=said):
            Detection().scores({"o": yolov8(FOUND)}, [*targets[:19], target])

    def test_classes_may_be_called_labels(self) -> None:
        targets = [{"boxes": each.corners, "labels": each.classes} for each in FOUND]
        assert Detection().scores({"o": yolov8(FOUND)}, targets)["map_50"].value > 0.98

    def test_shares_of_the_image_do_not_pass_for_pixels(self) -> None:
        targets = [np.column_stack([each.classes, each.corners / 320]) for each in FOUND]
        with pytest.raises(DatasetError, match="one is in pixels, the other a share"):
            Detection().scores({"o": yolov8(FOUND)}, targets)

    def test_there_must_be_one_for_each_sample_and_a_box(self) -> None:
        with pytest.raises(DatasetError, match="19 targets for 20 samples"):
            Detection().scores({"o": yolov8(FOUND)}, [np.zeros((0, 5))] * 19)
        with pytest.raises(DatasetError, match="none of 20 targets has a box"):
            Detection().scores({"o": yolov8(FOUND)}, [[]] * 20)


class TestDecode:
    def test_a_function_is_named_by_its_module(self) -> None:
        task = Detection(decode="decoder_for_tests:first_two")
        reference = {"dets": rows(FOUND)}
        found = list(task.reading(reference).all_boxes(reference))
        assert [len(each) for each in found if each] == [min(len(each), 2) for each in FOUND]
        assert pickle.loads(pickle.dumps(task)) == task

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("decoder_for_tests", "write it as mypkg.module:function"),
            ("no_such_module:f", "cannot be imported.*PYTHONPATH"),
            ("decoder_for_tests:first_tow", "did you mean 'first_two'"),
        ],
    )
    def test_what_is_no_function_is_refused_at_once(self, name: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            Detection(decode=name)

    def test_a_function_that_fails_is_told(self) -> None:
        outputs = {"dets": rows(FOUND)}
        with pytest.raises(MetricError, match="task.decode=decoded gives no.*KeyError: 'mine'"):
            Detection(decode=decoded).metric.losses(outputs, outputs)

    def test_a_layout_beside_it_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="leave one of them out"):
            Detection(decode=decoded, layout="yolo")
