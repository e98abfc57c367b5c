"""Detection: boxes with classes and scores."""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.metrics.intervals import bootstrap
from seqto.protocols import Harm, Metric
from seqto.tasks.box_checks import check_found, check_values
from seqto.tasks.box_choice import LayoutSettings, layout_of
from seqto.tasks.box_harm import AnchorHarm, MatchedHarm
from seqto.tasks.box_layouts import AnchorLayout, BoxLayout
from seqto.tasks.box_matching import disagreement
from seqto.tasks.box_reading import BoxReading, Decode, OwnLayout
from seqto.tasks.box_targets import boxes_of, check_targets
from seqto.tasks.boxes import NO_BOXES, Boxes
from seqto.tasks.named_function import named_function
from seqto.tasks.output_forms import sample_count
from seqto.tasks.precision import OVERLAPS, AveragePrecision
from seqto.types import Estimate, Outputs, Targets

SAME_OBJECT = 0.5
"""The least overlap (IoU) of boxes that are of the same object."""

_OFTEN = 0.8
"""The share of samples with boxes above which the others hardly dilute the mean loss."""

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Detection(LayoutSettings):
    """The boxes of objects; a sample is lost as far as its boxes are not the float model's."""

    name: str = "detection"
    decode: str | Decode | None = None
    background: int | None = None
    threshold: Share = 0.25
    iou: Share = 0.45
    max_boxes: Annotated[int, Field(ge=1)] = 300
    map_threshold: Share = 0.001

    def __post_init__(self) -> None:
        if self.decode is None:
            return
        if self.layout is not None:
            raise ConfigError(
                f"task.decode and task.layout={self.layout} both say how boxes are written: "
                "leave one of them out."
            )
        if isinstance(self.decode, str):
            # The function itself, so that its code is part of what identifies the task.
            self.decode = named_function(self.decode, "task.decode")

    @property
    def metric(self) -> Metric:
        """One minus the F1 score of the boxes."""
        return BoxDisagreement(self)

    def harm(self, reference: Outputs) -> Harm:
        """Return the error of boxes and scores, each on its own scale."""
        reading = self.checked_reading(reference)
        if isinstance(reading.layout, AnchorLayout):
            return AnchorHarm(reading, reference)
        return MatchedHarm(reading, reference)

    def scores(self, outputs: Outputs, targets: Targets) -> Mapping[str, Estimate]:
        """Return the mean average precision at overlaps of 0.5, and of 0.5 to 0.95."""
        reading, count = self.reading(outputs), sample_count(outputs)
        wanted = boxes_of(targets, count)
        found = [each or NO_BOXES for each in reading.all_boxes(outputs, self.map_threshold)]
        classes = reading.layout.classes if isinstance(reading.layout, AnchorLayout) else None
        check_targets(wanted, found, classes)
        return {
            name: bootstrap(AveragePrecision(found, wanted, iou).mean, count)
            for name, iou in (("map_50", OVERLAPS[:1]), ("map", OVERLAPS))
        }

    def remark(self, reference: Outputs) -> str:
        """Say in how many samples the float model finds boxes, if these are few."""
        found = [bool(each and len(each)) for each in self.reading(reference).all_boxes(reference)]
        if sum(found) >= _OFTEN * len(found):
            return ""
        return (
            f"the float model finds boxes in {sum(found)} of {len(found)} samples, and the others "
            "lose nothing: the loss of boxes is larger than the mean over samples"
        )

    def checked_reading(self, reference: Outputs) -> BoxReading:
        """Return how the float model's boxes are read, once its values bear that out."""
        reading = self.reading(reference)
        check_values(reading, reference, self.objectness is not None)
        return reading

    def reading(self, outputs: Outputs) -> BoxReading:
        """Return how boxes are read from outputs of these shapes."""
        layout = self._layout(outputs)
        return BoxReading(
            layout=layout,
            threshold=self.threshold,
            iou=self.iou,
            most=self.max_boxes,
            background=self._background(layout),
            suppresses=not isinstance(layout, BoxLayout),
        )

    def _layout(self, outputs: Outputs) -> AnchorLayout | BoxLayout | OwnLayout:
        if self.decode is None:
            return layout_of(self, outputs)
        assert callable(self.decode)
        return OwnLayout(self.decode, getattr(self.decode, "__name__", repr(self.decode)))

    def _background(self, layout: AnchorLayout | BoxLayout | OwnLayout) -> int | None:
        if self.background is None or not isinstance(layout, AnchorLayout):
            return self.background
        if not -layout.classes <= self.background < layout.classes or layout.classes < 2:
            raise ConfigError(
                f"task.background={self.background} is not one of the model's {layout.classes} "
                f"classes: choose one from 0 to {layout.classes - 1}, of two or more."
            )
        return self.background


@plain_dataclass
class BoxDisagreement:
    """One minus the F1 score of a candidate's boxes, those of the float model being right."""

    task: Detection
    name: str = "box_f1"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the loss of each sample; 1 where an output is not usable."""
        reading = self.task.checked_reading(reference)
        wanted = list(reading.all_boxes(reference))
        check_found(wanted, reading.threshold, reference)
        found = reading.all_boxes(outputs)
        return np.array([_loss(*pair) for pair in zip(wanted, found, strict=True)])


def _loss(reference: Boxes | None, found: Boxes | None) -> float:
    # What the float model cannot tell, no candidate can lose.
    if reference is None:
        return 0.0
    return 1.0 if found is None else disagreement(reference, found, SAME_OBJECT)
