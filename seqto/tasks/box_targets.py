"""The boxes that are in an image, as datasets write them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqto.errors import DatasetError, reason
from seqto.tasks.box_layouts import class_ids
from seqto.tasks.boxes import NO_BOXES, Boxes, sizes_of
from seqto.types import Targets

_EXPECTED = (
    'a target is {"boxes": [n, 4] as x1, y1, x2, y2, "classes": [n]}, or an array [n, 5] of class, '
    "x1, y1, x2, y2, in the pixels of the model's input"
)


def boxes_of(targets: Targets, count: int) -> list[Boxes]:
    """Return the boxes of each target, one target per sample."""
    if len(targets) != count:
        raise DatasetError(f"{len(targets)} targets for {count} samples: each sample needs one.")
    found = [_boxes(target, index) for index, target in enumerate(targets)]
    if not any(found):
        raise DatasetError(f"none of {count} targets has a box: {_EXPECTED}.")
    return found


def check_targets(targets: Sequence[Boxes], found: Sequence[Boxes], classes: int | None) -> None:
    """Refuse targets of classes, or in coordinates, that the model does not have."""
    most = max(int(each.classes.max()) for each in targets if len(each))
    if classes is not None and most >= classes:
        raise DatasetError(
            f"targets have the class {most}, but the model has the classes 0 to {classes - 1}. "
            "Count the targets' classes from 0, in the model's order."
        )
    spans = [_span(each) for each in (targets, found)]
    if min(spans) <= 1.5 and max(spans) > 15 and any(found):
        raise DatasetError(
            f"targets' boxes reach up to {spans[0]:.4g}, the model's up to {spans[1]:.4g}: one is "
            f"in pixels, the other a share of the image. Write both alike; {_EXPECTED}."
        )


def _span(boxes: Sequence[Boxes]) -> float:
    """Return how far most boxes reach."""
    reached = np.concatenate([each.corners[:, 2:].ravel() for each in boxes])
    return float(np.median(reached)) if len(reached) else 0.0


def _boxes(target: Any, index: int) -> Boxes:
    try:
        corners, classes = _parts(target)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise DatasetError(
            f"the target of sample {index} cannot be read ({reason(error)}): {_EXPECTED}."
        ) from error
    if not len(corners):
        return NO_BOXES
    if not np.isfinite(corners).all() or (sizes_of(corners) < 0).any():
        raise DatasetError(
            f"the target of sample {index} has boxes with a negative width or height, or without "
            f"numbers: {_EXPECTED}."
        )
    if (classes != np.round(classes)).any() or (classes < 0).any():
        raise DatasetError(
            f"the target of sample {index} has classes that are no whole numbers from 0: "
            f"{_EXPECTED}."
        )
    return Boxes(corners, np.ones(len(corners)), class_ids(classes))


def _parts(target: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners and the classes of a target."""
    if isinstance(target, Mapping):
        corners = np.asarray(target["boxes"], np.float64)
        # As torchvision calls them.
        key = "labels" if "classes" not in target and "labels" in target else "classes"
        classes = np.asarray(target[key], np.float64).ravel()
        return corners.reshape(len(classes), 4), classes
    rows = np.asarray(target, np.float64)
    rows = rows.reshape(-1, 5) if not rows.size else rows
    if rows.ndim != 2 or rows.shape[1] != 5:
        raise ValueError(f"its shape is {list(rows.shape)}")
    return rows[:, 1:], rows[:, 0]
