"""The true class of each pixel, as datasets write it."""

from typing import Any

import numpy as np

from seqto.errors import DatasetError

_EXPECTED = "a target of task=segmentation is a map [height, width] of classes, as whole numbers"


def pixels_of(target: Any, index: int) -> np.ndarray:
    """Return the map of classes that a target is."""
    values = np.squeeze(np.asarray(target))
    if values.ndim != 2 or values.dtype.kind not in "iubf":
        raise DatasetError(
            f"the target of sample {index} has the shape {list(np.shape(target))} and the type "
            f"{values.dtype}: {_EXPECTED}."
        )
    if values.dtype.kind == "f" and not (values == np.round(values)).all():
        raise DatasetError(f"the target of sample {index} has no whole numbers: {_EXPECTED}.")
    return values.astype(np.int64)


def fitted(target: np.ndarray, shape: tuple[int, ...], resizes: bool, index: int) -> np.ndarray:
    """Return a target with this height and width, by taking the nearest pixels if that is asked."""
    if target.shape == shape:
        return target
    if not resizes:
        raise DatasetError(
            f"the target of sample {index} is {list(target.shape)}, but the model's output is "
            f"{list(shape)}. Bring targets to the size of the output, or set "
            "task.resize_targets=true to take their nearest pixels."
        )
    rows, columns = (
        # The centre of each pixel of the output, in the target.
        ((np.arange(size) + 0.5) * own / size).astype(int)
        for own, size in zip(target.shape, shape, strict=True)
    )
    return target[np.ix_(rows, columns)]


def check_classes(target: np.ndarray, classes: int, ignore: int | None, index: int) -> None:
    """Refuse a target with classes that the model does not have."""
    if target.size and not (target.min() >= 0 and target.max() < classes):
        wrong = int(target.min() if target.min() < 0 else target.max())
        raise DatasetError(
            f"the target of sample {index} has the class {wrong}, but the model has the classes 0 "
            f"to {classes - 1}; task.ignore={'null' if ignore is None else ignore} is left out. "
            "Count classes as the model does, or set task.ignore."
        )
