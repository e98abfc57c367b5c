"""Segmentation: a class for each pixel."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass as plain_dataclass

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError, ModelError
from seqto.metrics.intervals import bootstrap
from seqto.protocols import Harm, Metric
from seqto.tasks.mask_areas import areas, mean_iou, mean_miss, of_objects
from seqto.tasks.mask_targets import check_classes, fitted, pixels_of
from seqto.tasks.output_forms import sample_count
from seqto.tasks.pixel_harm import PixelDivergence
from seqto.tasks.pixels import MOST_IDS, PixelLayout, Values, layout_of_pixels
from seqto.types import Estimate, Outputs, Targets


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Segmentation:
    """The class of each pixel; a sample is lost as far as its masks are not the float model's."""

    name: str = "segmentation"
    output: str | None = None
    axis: int | None = None
    threshold: float | None = None
    ignore: int | None = 255
    resize_targets: bool = False

    @property
    def metric(self) -> Metric:
        """One minus the mean IoU."""
        return MaskDisagreement(self)

    def harm(self, reference: Outputs) -> Harm:
        """Return the divergence of the classes of pixels."""
        return PixelDivergence(self.layout(reference), reference)

    def scores(self, outputs: Outputs, targets: Targets) -> Mapping[str, Estimate]:
        """Return the mean IoU with the targets, over the pixels of all samples together."""
        layout, count = self.layout(outputs), sample_count(outputs)
        if len(targets) != count:
            raise DatasetError(f"{len(targets)} targets for {count} samples: each needs one.")
        found = np.array(list(self._target_areas(layout, outputs, targets)))
        if not of_objects(found, layout).any():
            raise DatasetError(
                "no pixel of any target has a class (or is in an object) that counts: targets hold "
                f"only what is left out by task.ignore={self.ignore}, or only 0. Write masks as 0 "
                "and 1."
            )
        # Classes that are nowhere would only cost time.
        found = found[:, :, : 1 + int(np.flatnonzero(found.any(axis=(0, 1))).max())]

        def of(drawn: np.ndarray) -> float:
            return mean_iou(np.tensordot(np.bincount(drawn, minlength=count), found, 1), layout)

        return {"mean_iou": bootstrap(of, count)}

    def layout(self, outputs: Outputs) -> PixelLayout:
        """Return where outputs of these shapes have their classes."""
        return layout_of_pixels(outputs, self.output, self.axis, self.threshold)

    def _target_areas(
        self, layout: PixelLayout, outputs: Outputs, targets: Targets
    ) -> Iterator[np.ndarray]:
        """Yield the areas of each sample and its target."""
        classes = MOST_IDS if layout.values is Values.IDS else layout.classes
        pairs = zip(layout.entries(outputs), targets, strict=True)
        for index, (entry, target) in enumerate(pairs):
            shape = entry.shape if layout.axis is None else np.delete(entry.shape, layout.axis)
            wanted = fitted(pixels_of(target, index), tuple(shape), self.resize_targets, index)
            counts = np.ones(wanted.shape, bool) if self.ignore is None else wanted != self.ignore
            check_classes(wanted[counts], classes, self.ignore, index)
            found = layout.class_map(entry)
            if found is None:
                lost = np.bincount(wanted[counts], minlength=classes)
                yield np.stack([np.zeros_like(lost), lost])
            else:
                yield areas(wanted[counts], found[counts], classes)


@plain_dataclass
class MaskDisagreement:
    """One minus the mean IoU of a candidate's masks, those of the float model being right."""

    task: Segmentation
    name: str = "mask_iou"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the loss of each sample; 1 where an output is not usable."""
        layout, seen = self.task.layout(reference), set[int]()
        losses = []
        for entries in zip(layout.entries(reference), layout.entries(outputs), strict=True):
            wanted, found = map(layout.class_map, entries)
            if wanted is not None:
                seen.update(np.unique(wanted).tolist())
            losses.append(_loss(wanted, found, layout))
        _check_seen(seen, len(losses), layout)
        return np.array(losses)


def _loss(wanted: np.ndarray | None, found: np.ndarray | None, layout: PixelLayout) -> float:
    # What the float model cannot tell, no candidate can lose.
    if wanted is None:
        return 0.0
    if found is None or found.shape != wanted.shape:
        return 1.0
    classes = max(layout.classes, int(found.max()) + 1)
    return mean_miss(areas(wanted, found, classes), layout)


def _check_seen(seen: set[int], count: int, layout: PixelLayout) -> None:
    """Refuse a float model that tells nothing apart: no candidate could lose anything."""
    if len(seen) < 2:
        raise ModelError(
            f"the float model puts every pixel of {count} samples (output {layout.output!r}) into "
            "the same class, so nothing could be lost. Check the preprocessing, the data, and "
            "task.axis or task.threshold."
        )
