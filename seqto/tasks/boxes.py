"""Boxes of one image: their corners, their overlap, and which of them are found twice."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

BoxFormat = Literal["xyxy", "yxyx", "cxcywh", "xywh"]
"""The four numbers of a box: two corners, or a centre or a corner with width and height."""


@dataclass(frozen=True)
class Boxes:
    """The boxes of an image, by their corners x1, y1, x2, y2."""

    corners: np.ndarray
    scores: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, indices: np.ndarray) -> "Boxes":
        """Return the boxes at these indices, in this order."""
        return Boxes(self.corners[indices], self.scores[indices], self.classes[indices])


NO_BOXES = Boxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


def corners_of(boxes: np.ndarray, box_format: BoxFormat) -> np.ndarray:
    """Return the corners x1, y1, x2, y2 of boxes in this format."""
    # Float64: areas of float16 outputs would overflow.
    boxes = np.asarray(boxes, np.float64)
    if box_format == "xyxy":
        return boxes
    if box_format == "yxyx":
        return boxes[:, [1, 0, 3, 2]]
    place, size = boxes[:, :2], boxes[:, 2:]
    first = place - size / 2 if box_format == "cxcywh" else place
    return np.concatenate([first, first + size], axis=1)


def sizes_of(corners: np.ndarray) -> np.ndarray:
    """Return the width and the height of each box."""
    with np.errstate(invalid="ignore"):
        return np.asarray(corners[:, 2:] - corners[:, :2])


def overlaps(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the overlap (IoU) of each box of the first with each box of the second."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    areas = [sizes_of(each).prod(axis=1) for each in (one, other)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def surest_first(boxes: Boxes, threshold: float) -> Boxes:
    """Return the boxes with at least this score and an area, the surest one first."""
    has_area = (sizes_of(boxes.corners) > 0).all(axis=1)
    kept = np.flatnonzero((boxes.scores >= threshold) & has_area)
    # Stable, so that equal scores give the same order in both models.
    return boxes.take(kept[np.argsort(-boxes.scores[kept], kind="stable")])


def without_repeats(boxes: Boxes, iou: float, limit: int) -> Boxes:
    """Return the first boxes that no surer one of their class overlaps by more than `iou` (NMS)."""
    left, kept = np.arange(len(boxes)), list[int]()
    while len(left) and len(kept) < limit:
        first, left = left[0], left[1:]
        kept.append(int(first))
        overlap = overlaps(boxes.corners[first : first + 1], boxes.corners[left])[0]
        left = left[(overlap <= iou) | (boxes.classes[left] != boxes.classes[first])]
    return boxes.take(np.array(kept, np.int64))
