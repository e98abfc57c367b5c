"""How detectors write boxes into their outputs: before suppression, and after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqto.tasks.boxes import Boxes, BoxFormat, corners_of
from seqto.tasks.output_forms import Sample

Activation = Literal["sigmoid", "softmax"]
Column = Literal["image", "x1", "y1", "x2", "y2", "score", "class"]

ROWS: dict[int, tuple[Column, ...]] = {
    6: ("x1", "y1", "x2", "y2", "score", "class"),
    # As YOLOv7's end2end export writes them.
    7: ("image", "x1", "y1", "x2", "y2", "class", "score"),
}
"""The usual columns of a row, by their number."""


@dataclass(frozen=True)
class Anchors:
    """All places of an image at which a model looks for objects, with a score for each class."""

    boxes: np.ndarray
    scores: np.ndarray

    @property
    def are_usable(self) -> bool:
        """Whether all scores are finite, and no box is NaN."""
        if not self.scores.size:
            return True
        # A minimum or maximum costs less than a look at each value, and is NaN if any value is.
        finite = np.isfinite([self.scores.min(), self.scores.max()]).all()
        return bool(finite and not has_nan(self.boxes))


@dataclass(frozen=True)
class YoloLayout:
    """One output: the box of each anchor, perhaps its objectness, and a score for each class."""

    output: str
    channels_first: bool
    objectness: bool
    classes: int
    box_format: BoxFormat
    activation: Activation | None

    def anchors(self, sample: Sample) -> Anchors:
        """Return the anchors of a sample."""
        values = sample[self.output]
        rows = values.T if self.channels_first else values
        first = 5 if self.objectness else 4
        scores = activated(rows[:, first : first + self.classes], self.activation)
        if self.objectness:
            # What is called the objectness of one anchor has no softmax.
            sure = activated(rows[:, 4:5], "sigmoid" if self.activation else None)
            scores = scores * sure
        return Anchors(rows[:, :4], scores)


@dataclass(frozen=True)
class PairLayout:
    """Two outputs: the boxes of all anchors, and their scores for each class."""

    boxes: str
    scores: str
    classes: int
    box_format: BoxFormat
    activation: Activation | None

    def anchors(self, sample: Sample) -> Anchors:
        """Return the anchors of a sample."""
        scores = sample[self.scores].reshape(-1, self.classes)
        return Anchors(sample[self.boxes], activated(scores, self.activation))


@dataclass(frozen=True)
class RowLayout:
    """One output after suppression: a row per box, perhaps padded."""

    output: str
    columns: Sequence[Column]
    box_format: BoxFormat

    def boxes(self, sample: Sample) -> Boxes:
        """Return the boxes of a sample, padding included."""
        place = self._columns_of(sample, "x1", "y1", "x2", "y2")
        score = self._columns_of(sample, "score")[:, 0]
        return Boxes(corners_of(place, self.box_format), score, class_ids(self.labels_of(sample)))

    def labels_of(self, sample: Sample) -> np.ndarray:
        """Return the classes as the model writes them."""
        return self._columns_of(sample, "class")[:, 0]

    def _columns_of(self, sample: Sample, *names: Column) -> np.ndarray:
        rows = sample[self.output].reshape(-1, len(self.columns))
        return rows[:, [self.columns.index(name) for name in names]]


@dataclass(frozen=True)
class SeparateLayout:
    """Outputs after suppression: boxes, scores, classes, and perhaps how many there are."""

    corners: str
    scores: str
    labels: str
    counts: str | None
    box_format: BoxFormat

    def boxes(self, sample: Sample) -> Boxes:
        """Return the boxes of a sample, padding included where nothing counts them."""
        corners = sample[self.corners].reshape(-1, 4)
        count = len(corners)
        if self.counts and sample[self.counts].size:
            count = _counted(sample[self.counts], count)
        return Boxes(
            corners_of(corners[:count], self.box_format),
            sample[self.scores].ravel()[:count],
            class_ids(self.labels_of(sample)[:count]),
        )

    def labels_of(self, sample: Sample) -> np.ndarray:
        """Return the classes as the model writes them."""
        return sample[self.labels].ravel()


AnchorLayout = YoloLayout | PairLayout
BoxLayout = RowLayout | SeparateLayout


def activated(values: np.ndarray, activation: Activation | None) -> np.ndarray:
    """Return scores as probabilities."""
    if activation is None:
        return values
    # Float32 is enough for scores; its exponential overflows to what a sigmoid means.
    values = np.asarray(values, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if activation == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-values)))
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def class_ids(labels: np.ndarray) -> np.ndarray:
    """Return classes as integers; -1 for what is no number."""
    known = np.isfinite(labels) & (np.abs(labels) < 2**31)
    return np.rint(np.where(known, labels, -1)).astype(np.int64)


def has_nan(values: np.ndarray) -> bool:
    """Return whether any value is NaN."""
    # The minimum is NaN if any value is, and costs less than looking at each.
    return bool(values.dtype.kind == "f" and values.size and np.isnan(values.min()))


def _counted(counts: np.ndarray, most: int) -> int:
    value = float(counts.ravel()[0])
    return int(min(max(value, 0), most)) if np.isfinite(value) else most
