"""Which boxes of two models are of the same object."""

import numpy as np

from seqto.tasks.boxes import Boxes, overlaps

NONE = -1


def matched(reference: Boxes, found: Boxes, iou: float) -> np.ndarray:
    """Return the index of the reference's box that each found box matches, or -1.

    Found boxes choose one after the other: of the boxes of their class that are left, the one with
    the largest overlap, if it is at least `iou`.
    """
    partners = np.full(len(found), NONE)
    if not len(reference):
        return partners
    overlap = same_class_overlaps(found, reference)
    for index in np.flatnonzero(overlap.max(axis=1) >= iou):
        best = int(overlap[index].argmax())
        if overlap[index, best] >= iou:
            partners[index] = best
            overlap[:, best] = NONE
    return partners


def same_class_overlaps(found: Boxes, reference: Boxes) -> np.ndarray:
    """Return the overlaps of found boxes with the reference's; -1 where classes differ."""
    alike = found.classes[:, None] == reference.classes[None, :]
    return np.where(alike, overlaps(found.corners, reference.corners), float(NONE))


def disagreement(reference: Boxes, found: Boxes, iou: float) -> float:
    """Return one minus the F1 score of the found boxes; 0 where neither model finds any."""
    count = len(reference) + len(found)
    if not count:
        return 0.0
    hits = int((matched(reference, found, iou) != NONE).sum())
    # Not 1 - F1: rounding would make a loss of 1 % miss a limit of 0.01.
    return (count - 2 * hits) / count
