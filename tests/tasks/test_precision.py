"""Mean average precision: COCO's numbers."""

import numpy as np
import pytest

from seqto.tasks.boxes import Boxes
from seqto.tasks.precision import OVERLAPS, AveragePrecision


def corners(draw: np.random.RandomState, count: int) -> np.ndarray:
    """Return boxes anywhere."""
    place = draw.uniform(0, 400, (count, 2))
    return np.concatenate([place, place + draw.uniform(10, 200, (count, 2))], axis=1).round(1)


def drawn(seed: int, images: int, classes: int) -> tuple[list[Boxes], list[Boxes]]:
    """Return found boxes and targets: hits, near misses, repeats, wrong classes, equal scores."""
    draw = np.random.RandomState(seed)
    found, targets = [], []
    for _ in range(images):
        wanted, other = corners(draw, draw.randint(0, 8)), corners(draw, draw.randint(0, 10))
        labels = draw.randint(0, classes, len(wanted))
        targets.append(Boxes(wanted, np.ones(len(wanted)), labels))
        near = wanted + draw.randn(*wanted.shape) * draw.choice([1, 5, 20])
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        seen = np.where(draw.rand(len(wanted)) < 0.9, labels, 0)
        places = np.concatenate([near, near[:2] + 1, other]).round(2)
        kinds = np.concatenate([seen, seen[:2], draw.randint(0, classes + 1, len(other))])
        scores = draw.choice(np.arange(1, 100) / 100, len(places))
        order = np.argsort(-scores, kind="stable")
        found.append(Boxes(places[order], scores[order], kinds[order]))
    return found, targets


@pytest.mark.parametrize(
    ("seed", "images", "classes", "map_50", "map_all"),
    # COCOeval of pycocotools 2.0.11, for the same boxes: stats[1] and stats[0].
    [
        (0, 40, 3, 0.372002927252, 0.217859225333),
        (1, 100, 10, 0.224428520843, 0.123375379693),
        (2, 5, 1, 0.179857271441, 0.085810772321),
    ],
)
def test_numbers_are_those_of_coco(
    seed: int, images: int, classes: int, map_50: float, map_all: float
) -> None:
    pair, everything = drawn(seed, images, classes), np.arange(images)
    assert AveragePrecision(*pair, OVERLAPS[:1]).mean(everything) == pytest.approx(map_50, abs=1e-9)
    assert AveragePrecision(*pair).mean(everything) == pytest.approx(map_all, abs=1e-9)


def test_drawing_images_again_is_having_them_again() -> None:
    found, targets = drawn(3, 30, 4)
    # Without equal scores, which are sorted by image.
    draw = np.random.RandomState(0)
    found = [Boxes(each.corners, -np.sort(-draw.rand(len(each))), each.classes) for each in found]
    indices = draw.randint(0, 30, 30)
    whole = AveragePrecision(found, targets).mean(indices)
    again = AveragePrecision([found[i] for i in indices], [targets[i] for i in indices])
    # Copies of one image have equal scores: their hits and misses may stand in another order.
    assert whole == pytest.approx(again.mean(np.arange(30)), abs=2e-3)
    assert whole != pytest.approx(AveragePrecision(found, targets).mean(np.arange(30)), abs=2e-3)


def test_the_targets_themselves_are_perfect() -> None:
    _, targets = drawn(0, 20, 3)
    assert AveragePrecision(targets, targets).mean(np.arange(20)) == pytest.approx(1)


def test_no_box_found_is_a_precision_of_0() -> None:
    _, targets = drawn(0, 20, 3)
    nothing = [Boxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))] * 20
    assert AveragePrecision(nothing, targets).mean(np.arange(20)) == 0


def test_images_without_targets_have_no_precision() -> None:
    found, targets = drawn(0, 20, 3)
    empty = next(index for index, each in enumerate(targets) if not len(each))
    assert np.isnan(AveragePrecision(found, targets).mean(np.array([empty])))
