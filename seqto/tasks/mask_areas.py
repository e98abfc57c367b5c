"""The areas that two maps of classes share."""

import numpy as np

from seqto.tasks.pixels import PixelLayout


def areas(one: np.ndarray, other: np.ndarray, classes: int) -> np.ndarray:
    """Return the pixels of each class in both maps, and in any of them: `[2, classes]`."""
    one, other = one.ravel(), other.ravel()
    shared = np.bincount(one[one == other], minlength=classes)
    either = np.bincount(one, minlength=classes) + np.bincount(other, minlength=classes) - shared
    return np.stack([shared, either])


def mean_iou(found: np.ndarray, layout: PixelLayout) -> float:
    """Return the mean over the classes that are in any of two maps; 1 if there are none."""
    return 1.0 - mean_miss(found, layout)


def mean_miss(found: np.ndarray, layout: PixelLayout) -> float:
    """Return one minus the mean IoU."""
    shared, either = of_objects(found, layout)
    present = either > 0
    if not present.any():
        return 0.0
    # Not 1 - mean: rounding would make a loss of 1 % miss a limit of 0.01.
    return float(((either - shared)[present] / either[present]).mean())


def of_objects(found: np.ndarray, layout: PixelLayout) -> np.ndarray:
    """Return the areas of the classes that count: of a mask, what is outside is no class."""
    return found[..., 1:] if layout.is_mask else found
