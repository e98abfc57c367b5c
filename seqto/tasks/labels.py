"""Targets that are class numbers."""

import numpy as np

from seqto.errors import DatasetError
from seqto.types import Targets

_LIMIT = 2**63
"""What fits into an integer of NumPy is below."""


def class_labels(targets: Targets, classes: int, samples: int) -> np.ndarray:
    """Return one class number per sample; refuse what is none of the model's classes."""
    labels = whole_numbers(targets, samples)
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DatasetError(
            f"a label is {wrong}, but the model has the classes 0 to {classes - 1}: give labels in "
            "the model's own numbering, or none."
        )
    return labels


def whole_numbers(targets: Targets, samples: int) -> np.ndarray:
    """Return one whole number per sample."""
    check_count(targets, samples)
    values = [np.asarray(each) for each in targets]
    wrong = next((each for each in values if not _is_whole_number(each)), None)
    if wrong is not None:
        raise DatasetError(
            f"a label is {_shown(wrong)}, but this task expects one whole number per sample, its "
            "class: give numbers in the model's own numbering, or no labels."
        )
    return np.array([each.item() for each in values], np.int64)


def same_for_all(found: np.ndarray, what: str) -> str:
    """Say so if the float model finds the same in all samples; else return nothing."""
    if len(found) < 2 or len(np.unique(found)) > 1:
        return ""
    return (
        f"the float model's {what} is the same for all {len(found)} samples, so that hardly "
        "anything can be lost: check the preprocessing and the samples"
    )


def check_count(targets: Targets, samples: int) -> None:
    """Refuse another number of targets than of samples."""
    if len(targets) != samples:
        raise DatasetError(
            f"there are {len(targets)} targets for {samples} samples: give one target per sample."
        )


def _is_whole_number(value: np.ndarray) -> bool:
    if value.size != 1 or value.dtype.kind not in "iubf":
        return False
    if value.dtype.kind == "f" and not float(value.item()).is_integer():
        return False
    return abs(int(value.item())) < _LIMIT


def _shown(value: np.ndarray) -> str:
    text = repr(value.item()) if value.size == 1 else f"an array of the shape {list(value.shape)}"
    return text if len(text) < 80 else f"{text[:77]}..."
