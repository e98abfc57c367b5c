"""From a detector's outputs to the boxes of each sample."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from seqto.errors import MetricError, reason
from seqto.tasks.box_layouts import AnchorLayout, Anchors, BoxLayout, class_ids, has_nan
from seqto.tasks.boxes import NO_BOXES, Boxes, corners_of, surest_first, without_repeats
from seqto.tasks.output_forms import Sample, samples_of
from seqto.types import Outputs

Decode = Callable[[Sample], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""A user's function from one sample's outputs to corners, scores and classes of its boxes."""


@dataclass(frozen=True)
class OwnLayout:
    """Outputs that only the user's own function understands."""

    decode: Decode
    name: str

    def boxes(self, sample: Sample) -> Boxes:
        """Return what the function makes of a sample."""
        try:
            corners, scores, classes = map(np.asarray, self.decode(dict(sample)))
            return Boxes(
                corners_of(corners.reshape(-1, 4), "xyxy"),
                scores.reshape(len(corners)),
                class_ids(classes.reshape(len(corners))),
            )
        # Whatever the user's function raises is told as its error.
        except Exception as error:
            shapes = ", ".join(f"{name!r} {list(each.shape)}" for name, each in sample.items())
            raise MetricError(
                f"task.decode={self.name} gives no boxes [n, 4], scores [n] and classes [n] for a "
                f"sample with the outputs {shapes}: {reason(error)}."
            ) from error


@dataclass(frozen=True)
class Reading:
    """How boxes are read: their layout, and which of them count."""

    layout: AnchorLayout | BoxLayout | OwnLayout
    threshold: float
    iou: float
    most: int
    background: int | None
    suppresses: bool

    def all_boxes(self, outputs: Outputs, threshold: float | None = None) -> Iterator[Boxes | None]:
        """Yield the boxes of each sample, the surest first; None if an output is not usable."""
        threshold = self.threshold if threshold is None else threshold
        for sample in samples_of(outputs):
            yield self._boxes(sample, threshold)

    def _boxes(self, sample: Sample, threshold: float) -> Boxes | None:
        found = self._found(sample, threshold)
        if found is None:
            return None
        above = found.take(np.flatnonzero(found.scores >= threshold))
        if not (np.isfinite(above.corners).all() and np.isfinite(above.scores).all()):
            return None
        kept = surest_first(above, threshold)
        if self.suppresses:
            return without_repeats(kept, self.iou, self.most)
        return kept.take(np.arange(min(len(kept), self.most)))

    def _found(self, sample: Sample, threshold: float) -> Boxes | None:
        if isinstance(self.layout, AnchorLayout):
            anchors = self.anchors(sample)
            return None if anchors is None else self._above(anchors, threshold)
        if any(map(has_nan, sample.values())):
            return None
        return self._in_foreground(self.layout.boxes(sample))

    def _in_foreground(self, boxes: Boxes) -> Boxes:
        if self.background is None:
            return boxes
        return boxes.take(np.flatnonzero(boxes.classes != self.background))

    def anchors(self, sample: Sample) -> Anchors | None:
        """Return all anchors of a sample, without the background; None if they are not usable."""
        assert isinstance(self.layout, AnchorLayout)
        anchors = self.layout.anchors(sample)
        if not anchors.are_usable:
            return None
        if self.background is None:
            return anchors
        scores = anchors.scores.copy()
        scores[:, self.background] = 0
        return Anchors(anchors.boxes, scores)

    def _above(self, anchors: Anchors, threshold: float) -> Boxes:
        """Return the anchors that find an object, each with its best class."""
        assert isinstance(self.layout, AnchorLayout)
        if not anchors.scores.size:
            return NO_BOXES
        best = anchors.scores.max(axis=1)
        kept = np.flatnonzero(best >= threshold)
        return Boxes(
            corners_of(anchors.boxes[kept], self.layout.box_format),
            best[kept].astype(np.float64),
            anchors.scores[kept].argmax(axis=1),
        )
