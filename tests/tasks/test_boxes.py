"""Corners, overlaps and suppression of boxes."""

import numpy as np
import pytest

from seqto.tasks.boxes import Boxes, corners_of, overlaps, surest_first, without_repeats


def boxes(*each: tuple[list[float], float, int]) -> Boxes:
    """Return boxes of corners, score and class."""
    corners, scores, classes = zip(*each, strict=True)
    return Boxes(np.array(corners, float), np.array(scores), np.array(classes))


@pytest.mark.parametrize(
    ("box_format", "written"),
    [
        ("xyxy", [10, 20, 30, 60]),
        ("yxyx", [20, 10, 60, 30]),
        ("cxcywh", [20, 40, 20, 40]),
        ("xywh", [10, 20, 20, 40]),
    ],
)
def test_every_format_gives_the_same_corners(box_format: str, written: list[int]) -> None:
    found = corners_of(np.array([written], np.float16), box_format)  # type: ignore[arg-type]
    assert found.tolist() == [[10, 20, 30, 60]]


def test_overlap_is_the_shared_area_over_the_union() -> None:
    one = np.array([[0, 0, 2, 2], [0, 0, 1, 1], [5, 5, 5, 5]], float)
    other = np.array([[1, 0, 3, 2], [0, 0, 2, 2], [5, 5, 5, 5]], float)
    wanted = [[1 / 3, 1, 0], [0, 1 / 4, 0], [0, 0, 0]]
    assert overlaps(one, other) == pytest.approx(np.array(wanted))


def test_only_sure_boxes_with_an_area_are_kept_in_order() -> None:
    found = boxes(
        ([0, 0, 1, 1], 0.3, 0),
        ([0, 0, 0, 1], 0.9, 1),
        ([0, 0, 2, 2], 0.5, 2),
        ([0, 0, 1, 1], 0.2, 3),
    )
    assert surest_first(found, 0.3).classes.tolist() == [2, 0]


def test_equal_scores_keep_their_order() -> None:
    found = boxes(*[([0, 0, 1, 1], 0.5, index) for index in range(20)])
    assert surest_first(found, 0.1).classes.tolist() == list(range(20))


def test_repeats_are_left_out_within_a_class() -> None:
    found = boxes(
        ([0, 0, 10, 10], 0.9, 0),
        ([0, 0, 10, 9], 0.8, 0),
        ([0, 0, 10, 9], 0.7, 1),
        # It overlaps a box that is left out, and no kept one.
        ([0, 6, 10, 15], 0.6, 0),
    )
    assert without_repeats(found, 0.45, 300).scores.tolist() == [0.9, 0.7, 0.6]
    assert without_repeats(found, 0.45, 2).scores.tolist() == [0.9, 0.7]
    assert len(without_repeats(found, 1.0, 300)) == 4


def test_suppression_is_that_of_a_plain_loop() -> None:
    draw = np.random.RandomState(0)
    place = draw.uniform(0, 60, (400, 2))
    corners = np.concatenate([place, place + draw.uniform(5, 30, (400, 2))], axis=1)
    found = surest_first(Boxes(corners, draw.rand(400), draw.randint(0, 3, 400)), 0.0)
    kept: list[int] = []
    for index in range(400):
        rivals = [each for each in kept if found.classes[each] == found.classes[index]]
        if all(overlaps(found.corners[[each]], found.corners[[index]]) <= 0.45 for each in rivals):
            kept.append(index)
    assert without_repeats(found, 0.45, 300).scores.tolist() == found.scores[kept].tolist()
