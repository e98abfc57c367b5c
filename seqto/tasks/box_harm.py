"""How far a detector's boxes are from the float model's.

Scores and boxes do not share a scale, so each is compared on its own: the error of a score with
the score, the error of a corner with the size of its box. What is seen at an anchor counts by the
cube of its score. Thus thousands of anchors without an object do not drown the few that have one:
losing all boxes is ruin, however many anchors agree that there is nothing.
"""

import numpy as np

from seqto.tasks.box_layouts import AnchorLayout, Anchors
from seqto.tasks.box_matching import NONE, matched
from seqto.tasks.box_reading import Reading
from seqto.tasks.boxes import Boxes, corners_of, sizes_of
from seqto.tasks.output_forms import samples_of
from seqto.types import Outputs

UNUSABLE = 100.0
"""The harm of an output that is not a number: more than that of losing all boxes."""

_SCALE = 10.0
"""The harm of losing all boxes.

It makes the harm as large as the KL divergence of a classifier that loses as much: scores and
corners that are off by 10 % change some 5 to 10 % of the boxes, and have a harm of 0.1.
"""

_FAINT = 0.2
"""Boxes with a score below this share of the threshold have next to no weight."""

_TOUCHING = 0.1
"""The least overlap of boxes that are compared: far less than what counts as the same object."""


class AnchorHarm:
    """The error of scores and boxes at each anchor, as a share of the float model's scores."""

    name = "boxes"

    def __init__(self, reading: Reading, reference: Outputs) -> None:
        self._reading, self._reference = reading, reference
        seen = [reading.anchors(sample) for sample in samples_of(reference)]
        weights = [0.0 if each is None else _total(_certain(each.scores) ** 3) for each in seen]
        self._weight = _mean_weight(weights, reading.threshold)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the harm to each sample."""
        pairs = zip(samples_of(self._reference), samples_of(outputs), strict=False)
        return np.array(
            [self._harm(*map(self._reading.anchors, pair)) / self._weight for pair in pairs]
        )

    def _harm(self, reference: Anchors | None, found: Anchors | None) -> float:
        if reference is None:
            return 0.0
        if found is None or found.scores.shape != reference.scores.shape:
            return UNUSABLE * self._weight
        wanted, got = _certain(reference.scores), _certain(found.scores)
        scores = _total(np.maximum(wanted, got) * (wanted - got) ** 2)
        return scores + self._box_error(reference.boxes, found.boxes, wanted.max(axis=1))

    def _box_error(self, reference: np.ndarray, found: np.ndarray, scores: np.ndarray) -> float:
        assert isinstance(self._reading.layout, AnchorLayout)
        box_format = self._reading.layout.box_format
        telling = scores >= _FAINT * self._reading.threshold
        wanted, got = (corners_of(each[telling], box_format) for each in (reference, found))
        return _total(scores[telling].astype(np.float64) ** 3 * _corner_errors(wanted, got))


class MatchedHarm:
    """The error of scores and boxes that match; what has no match counts in full."""

    name = "boxes"

    def __init__(self, reading: Reading, reference: Outputs) -> None:
        self._reading = reading
        self._boxes = self._all_boxes(reference)
        weights = [0.0 if each is None else _total(each.scores**3) for each in self._boxes]
        self._weight = _mean_weight(weights, reading.threshold)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the harm to each sample."""
        pairs = zip(self._boxes, self._all_boxes(outputs), strict=False)
        return np.array([self._harm(*pair) / self._weight for pair in pairs])

    def _all_boxes(self, outputs: Outputs) -> list[Boxes | None]:
        return list(self._reading.all_boxes(outputs, _FAINT * self._reading.threshold))

    def _harm(self, reference: Boxes | None, found: Boxes | None) -> float:
        if reference is None:
            return 0.0
        if found is None:
            return UNUSABLE * self._weight
        partners = matched(reference, found, _TOUCHING)
        pairs = np.flatnonzero(partners != NONE)
        lost = np.delete(reference.scores, partners[pairs])
        invented = np.delete(found.scores, pairs)
        both = _pair_errors(reference.take(partners[pairs]), found.take(pairs))
        return _total(both) + _total(lost**3) + _total(_certain(invented) ** 3)


def _pair_errors(wanted: Boxes, got: Boxes) -> np.ndarray:
    scores = _certain(got.scores)
    error = np.maximum(wanted.scores, scores) * (wanted.scores - scores) ** 2
    return np.asarray(error + wanted.scores**3 * _corner_errors(wanted.corners, got.corners))


def _corner_errors(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Return the squared error of each box's corners as a share of its size, at most 1."""
    sizes = np.tile(sizes_of(wanted), 2)
    with np.errstate(all="ignore"):
        error = np.square((got - wanted) / sizes).mean(axis=1)
        share = 1 - 1 / (1 + error)
    # A box without a size is none that could be lost.
    return np.where((sizes > 0).all(axis=1), np.nan_to_num(share, nan=1.0), 0.0)


def _certain(scores: np.ndarray) -> np.ndarray:
    """Return scores as probabilities; int8 may round them to more than 1."""
    return np.asarray(np.clip(scores, 0, 1))


def _total(values: np.ndarray) -> float:
    return float(values.sum(dtype=np.float64))


def _mean_weight(weights: list[float], threshold: float) -> float:
    """Return what has a harm of 1: no less than if one of all samples had one faint box."""
    return max(float(np.mean(weights)), threshold**3 / len(weights), 1e-12) / _SCALE
