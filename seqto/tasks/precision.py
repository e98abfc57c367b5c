"""Mean average precision as COCO defines it, fast enough to be resampled."""

from collections.abc import Sequence

import numpy as np

from seqto.tasks.box_matching import same_class_overlaps
from seqto.tasks.boxes import Boxes

OVERLAPS = np.linspace(0.5, 0.95, 10)
"""The overlaps (IoU) at which a found box is a hit: 0.5, 0.55, ... 0.95."""

_RECALLS = np.linspace(0.0, 1.0, 101)


class AveragePrecision:
    """Average precision of found boxes, over images that may be drawn several times each.

    Boxes are matched with the targets once. A draw is a weight per image, so that a mean average
    precision costs a few passes over all boxes, and no loop over classes.
    """

    def __init__(
        self, found: Sequence[Boxes], targets: Sequence[Boxes], iou: np.ndarray = OVERLAPS
    ) -> None:
        self._known = np.unique(np.concatenate([each.classes for each in targets]))
        self._positives = np.array(
            [(each.classes[:, None] == self._known).sum(axis=0) for each in targets]
        )
        hits = [_hits(*pair, iou) for pair in zip(found, targets, strict=True)]
        self._arrange(found, np.concatenate(hits, axis=1))

    def _arrange(self, found: Sequence[Boxes], hits: np.ndarray) -> None:
        """Sort all boxes by class and score; put all hits in one row, overlap by overlap."""
        classes = np.concatenate([each.classes for each in found])
        scores = np.concatenate([each.scores for each in found])
        images = np.repeat(np.arange(len(found)), [len(each) for each in found])
        # Stable, and boxes of classes that no target has do not count.
        order = np.lexsort((-scores, classes))
        order = order[np.isin(classes[order], self._known)]
        column = np.searchsorted(self._known, classes[order])
        self._images = images[order]
        level, self._place = np.nonzero(hits[:, order])
        self._column = column[self._place]
        self._class_start = np.searchsorted(column, np.arange(len(self._known)))[self._column]
        self._curve = level * len(self._known) + self._column
        self._curve_start = np.searchsorted(self._curve, self._curve)
        self._levels = len(hits)

    def mean(self, indices: np.ndarray) -> float:
        """Return the mean over classes and overlaps for the images at these indices."""
        weights = np.bincount(indices, minlength=len(self._positives)).astype(np.float64)
        positives = weights @ self._positives
        present = positives > 0
        if not present.any():
            return float("nan")
        areas = self._areas(weights, positives).reshape(self._levels, -1)
        return float(areas[:, present].mean())

    def _areas(self, weights: np.ndarray, positives: np.ndarray) -> np.ndarray:
        """Return the area under the curve of precision over recall, of each overlap and class."""
        if not len(self._place):
            return np.zeros(self._levels * len(self._known))
        boxes = _sums_before(weights[self._images])
        seen = boxes[self._place + 1] - boxes[self._class_start]
        hits = _sums_before(weights[self._images[self._place]])
        hits = hits[1:] - hits[self._curve_start]
        reached = np.searchsorted(
            _RECALLS, hits / np.maximum(positives[self._column], 1), side="right"
        )
        best = self._best_from_here(hits / np.maximum(seen, 1))
        first = self._curve_start == np.arange(len(self._place))
        before = np.where(first, 0, np.roll(reached, 1))
        size = self._levels * len(self._known)
        return np.bincount(self._curve, best * (reached - before), size) / len(_RECALLS)

    def _best_from_here(self, precision: np.ndarray) -> np.ndarray:
        """Return the best precision at each recall or a larger one, curve by curve."""
        # Going backward, each curve is lifted above the ones that were passed.
        lift = -2.0 * self._curve
        return np.asarray(np.maximum.accumulate((precision + lift)[::-1])[::-1] - lift)


def _hits(found: Boxes, target: Boxes, iou: np.ndarray) -> np.ndarray:
    """Return which found boxes hit a target of their own, for each overlap; the surest go first."""
    hits = np.zeros((len(iou), len(found)), bool)
    if not len(found) or not len(target):
        return hits
    overlap = same_class_overlaps(found, target)
    free = np.ones((len(iou), len(target)), bool)
    levels = np.arange(len(iou))
    for index in np.flatnonzero(overlap.max(axis=1) >= iou[0]):
        near = np.where(free & (overlap[index] >= iou[:, None]), overlap[index], -1.0)
        # Of equal overlaps COCO takes the last.
        best = near.shape[1] - 1 - near[:, ::-1].argmax(axis=1)
        hits[:, index] = near[levels, best] >= 0
        free[levels[hits[:, index]], best[hits[:, index]]] = False
    return hits


def _sums_before(values: np.ndarray) -> np.ndarray:
    """Return the sum of all values before each place, and of all at the end."""
    return np.concatenate([[0.0], np.cumsum(values)])
