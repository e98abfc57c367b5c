"""What detectors of several kinds return for the same objects."""

from collections.abc import Sequence

import numpy as np

from seqto.tasks.boxes import Boxes

CLASSES = 3
SIDE = 320


def objects(samples: int = 20, seed: int = 0) -> list[Boxes]:
    """Return one to four objects per image, none of which overlap."""
    draw = np.random.RandomState(seed)
    return [_objects(draw) for _ in range(samples)]


def _objects(draw: np.random.RandomState) -> Boxes:
    places = draw.permutation(9)[: draw.randint(1, 5)]
    centres = np.stack([places % 3, places // 3], axis=1) * 100 + 60
    sizes = draw.uniform(30, 80, (len(places), 2))
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
    scores = np.sort(draw.uniform(0.4, 0.9, len(places)))[::-1]
    return Boxes(corners, scores, draw.randint(0, CLASSES, len(places)))


def anchors(found: Sequence[Boxes], count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes [samples, anchors, 4] by corners, and scores [samples, anchors, classes].

    Two anchors see each object, the second one less surely; the others see nothing.
    """
    draw = np.random.RandomState(1)
    places = draw.uniform(0, SIDE - 40, (len(found), count, 2))
    boxes = np.concatenate([places, places + draw.uniform(10, 40, places.shape)], axis=2)
    scores = draw.uniform(0, 0.02, (len(found), count, CLASSES))
    for image, each in enumerate(found):
        for share, start in ((1.0, 0), (0.9, 10)):
            rows = np.arange(start, start + len(each))
            boxes[image, rows] = each.corners + (1 - share) * 10
            scores[image, rows, each.classes] = share * each.scores
    return boxes.astype(np.float32), scores.astype(np.float32)


def by_centres(boxes: np.ndarray) -> np.ndarray:
    """Return boxes as centre and size."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([(low + high) / 2, high - low], axis=-1)


def yolov8(found: Sequence[Boxes]) -> np.ndarray:
    """Return channels first, without an objectness."""
    boxes, scores = anchors(found)
    return np.concatenate([by_centres(boxes), scores], axis=2).transpose(0, 2, 1)


def yolov5(found: Sequence[Boxes]) -> np.ndarray:
    """Return anchors first, with an objectness; where nothing is, classes mean nothing."""
    boxes, scores = anchors(found)
    sure = scores.max(axis=2, keepdims=True)
    shares = scores / sure
    return np.concatenate([by_centres(boxes), sure, shares], axis=2)


def rows(found: Sequence[Boxes], padded_to: int = 6) -> np.ndarray:
    """Return x1, y1, x2, y2, score, class after suppression, with padding."""
    padded = np.zeros((len(found), padded_to, 6), np.float32)
    for image, each in enumerate(found):
        padded[image, : len(each)] = np.column_stack([each.corners, each.scores, each.classes])
    return padded


def torchvision(found: Sequence[Boxes]) -> dict[str, tuple[np.ndarray, ...]]:
    """Return ragged boxes, labels and scores."""
    return {
        "boxes": tuple(each.corners.astype(np.float32) for each in found),
        "labels": tuple(each.classes.astype(np.int64) for each in found),
        "scores": tuple(each.scores.astype(np.float32) for each in found),
    }


def efficient_nms(found: Sequence[Boxes]) -> dict[str, np.ndarray]:
    """Return what TensorRT's plugin does: counts, and boxes padded with what is no box."""
    padded = rows(found)
    for image, each in enumerate(found):
        padded[image, len(each) :] = (0, 0, 9, 9, 1, 0)
    return {
        "num_dets": np.array([[len(each)] for each in found], np.int32),
        "det_boxes": padded[..., :4],
        "det_scores": padded[..., 4],
        "det_classes": padded[..., 5].astype(np.int32),
    }
