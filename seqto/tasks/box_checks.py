"""Whether the float model's values are what its layout says: a wrong guess must not go unseen."""

from collections.abc import Iterator, Sequence

import numpy as np

from seqto.errors import ModelError
from seqto.tasks.box_layouts import AnchorLayout, RowLayout, SeparateLayout, YoloLayout, activated
from seqto.tasks.box_reading import BoxReading
from seqto.tasks.boxes import Boxes, corners_of, sizes_of
from seqto.tasks.output_forms import Sample, forms_of, listed, samples_of
from seqto.types import Outputs

_TOLERANCE = 1e-3
"""How far outside 0 to 1 rounding may put a score."""

_FEW = 10
"""So few anchors prove nothing."""

_MOSTLY = 0.5
"""The share from which values contradict a layout."""

_BROKEN = 0.1
"""The share of boxes that may be broken."""


def check_values(reading: BoxReading, reference: Outputs, knows_objectness: bool) -> None:
    """Refuse the float model's outputs if their values contradict their layout."""
    if isinstance(reading.layout, AnchorLayout):
        if isinstance(reading.layout, YoloLayout) and not knows_objectness:
            _check_objectness(reading.layout, reading.threshold, reference)
        _check_anchors(reading, reading.layout, reference)
    elif isinstance(reading.layout, RowLayout | SeparateLayout):
        _check_labels(reading.layout, reference)
        found = [reading.layout.boxes(sample) for sample in _usable(reference)]
        _check_scores(
            [each.scores for each in found], "task.scores_output or task.columns", reference
        )
        _check_sizes([_above(each, reading.threshold) for each in found], reference)


def check_found(found: Sequence[Boxes | None], threshold: float, reference: Outputs) -> None:
    """Refuse a float model that finds nothing: no candidate could lose anything."""
    if not any(found):
        raise ModelError(
            f"the float model finds no box with a score of at least {threshold} in any of "
            f"{len(found)} samples {_listed(reference)}, so nothing could be lost. Lower "
            "task.threshold, or check the preprocessing, the data and the task's other keys."
        )


def _check_anchors(reading: BoxReading, layout: AnchorLayout, reference: Outputs) -> None:
    ranges, corners, anchors = [], [], 0
    for sample in samples_of(reference):
        seen = reading.anchors(sample)
        if seen is None or not seen.scores.size:
            continue
        best = seen.scores.max(axis=1)
        above = best >= reading.threshold
        ranges.append(np.array([seen.scores.min(), best.max()]))
        corners.append(corners_of(seen.boxes[above], layout.box_format))
        anchors += len(best)
    _check_scores(ranges, "task.activation=sigmoid or softmax, if they are logits", reference)
    _check_crowd(sum(map(len, corners)), anchors, reference)
    if sum(map(len, corners)) >= _FEW:
        _check_sizes(corners, reference)
    else:
        # A few boxes prove nothing, but most anchors are boxes, too, if a poor guess.
        seen_all = filter(None, map(reading.anchors, samples_of(reference)))
        every = [corners_of(each.boxes, layout.box_format) for each in seen_all]
        _check_sizes(every, reference, _MOSTLY)


def _check_scores(scores: Sequence[np.ndarray], keys: str, reference: Outputs) -> None:
    values = np.concatenate([np.zeros(1), *scores])
    low, high = values.min(), values.max()
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        raise ModelError(
            f"the scores of the model's outputs {_listed(reference)} go from {low:.4g} to "
            f"{high:.4g}, but probabilities are expected. Set {keys}; or another task.layout, "
            "task.channels or task.classes, if other values are read as scores."
        )


def _check_crowd(above: int, anchors: int, reference: Outputs) -> None:
    if above > max(_FEW**2, _MOSTLY * anchors):
        raise ModelError(
            f"{above} of {anchors} anchors of the model's outputs {_listed(reference)} are sure of "
            "an object, which no image has. Leave out the class of the background with "
            "task.background=<class>, or change task.activation or task.threshold."
        )


def _check_sizes(corners: Sequence[np.ndarray], reference: Outputs, most: float = _BROKEN) -> None:
    sizes = sizes_of(np.concatenate([np.zeros((0, 4)), *corners]))
    turned = np.asarray((sizes < 0).any(axis=1))
    # One box may be broken; a format that is wrong breaks many.
    if turned.sum() > most * len(turned):
        raise ModelError(
            f"{turned.sum()} of {len(turned)} boxes of the model's outputs {_listed(reference)} "
            "have a negative width or height, so they are written in another way. Change "
            "task.box_format (xyxy, yxyx, cxcywh, xywh), or decode them with task.decode."
        )


def _check_objectness(layout: YoloLayout, threshold: float, reference: Outputs) -> None:
    """Refuse a guess that is wrong: where an objectness is high, so is the score of some class."""
    others = np.concatenate([np.zeros(0), *_beside_first(layout, threshold, reference)])
    if len(others) < _FEW:
        return
    looks_so = np.median(others) >= (threshold if layout.objectness else _MOSTLY)
    if bool(looks_so) != layout.objectness:
        raise ModelError(
            f"the fifth channel of the model's outputs {_listed(reference)} looks like "
            f"{'an objectness' if looks_so else 'the score of a class, not like an objectness'}. "
            "Say what it is, with task.objectness=true or false."
        )


def _beside_first(layout: YoloLayout, threshold: float, reference: Outputs) -> Iterator[np.ndarray]:
    """Yield the best score behind the fifth channel, for anchors where that one is high."""
    for sample in _usable(reference):
        values = sample[layout.output]
        rows = values.T if layout.channels_first else values
        last = 4 + layout.classes + layout.objectness
        scores = activated(rows[:, 4:last], "sigmoid" if layout.activation else None)
        if scores.shape[1] > 1:
            yield scores[scores[:, 0] >= threshold, 1:].max(axis=1)


def _check_labels(layout: RowLayout | SeparateLayout, reference: Outputs) -> None:
    labels = [layout.labels_of(sample).astype(np.float64) for sample in _usable(reference)]
    values = np.concatenate([np.zeros(0), *labels])
    if (values != np.round(values)).any():
        key = "columns" if isinstance(layout, RowLayout) else "labels_output"
        raise ModelError(
            f"the classes in the model's outputs {_listed(reference)} are no whole numbers, so "
            f"they stand elsewhere. Set task.{key}, or another task.layout."
        )


def _usable(reference: Outputs) -> Iterator[Sample]:
    """Yield the samples with nothing but numbers."""
    for sample in samples_of(reference):
        if all(np.isfinite(values).all() for values in sample.values()):
            yield sample


def _above(boxes: Boxes, threshold: float) -> np.ndarray:
    return boxes.corners[boxes.scores >= threshold]


def _listed(reference: Outputs) -> str:
    return f"({listed(forms_of(reference))})"
