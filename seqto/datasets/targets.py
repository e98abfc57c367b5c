"""What is right for each sample, in whatever form users have it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqto.errors import DatasetError
from seqto.types import Targets


def as_array(value: Any) -> np.ndarray:
    """Return an array, or any library's tensor, as a NumPy array."""
    # A torch tensor must leave its computation graph and its device first.
    for leave in ("detach", "cpu"):
        if hasattr(value, leave):
            value = getattr(value, leave)()
    return np.asarray(value)


def is_array(value: Any) -> bool:
    """Tell whether this is an array, or any library's tensor."""
    return hasattr(value, "__array__")


def as_targets(labels: Any) -> Targets:
    """Return one target per sample: numbers as an array, all else as a tuple."""
    if is_array(labels):
        return as_array(labels)
    if isinstance(labels, str | bytes | Mapping) or not hasattr(labels, "__len__"):
        raise DatasetError(
            f"labels cannot be of type {type(labels).__name__}: give an array or a list with one "
            "entry per sample."
        )
    targets = [as_target(each) for each in labels]
    is_number = all(isinstance(each, int | float) for each in targets)
    return np.asarray(targets) if targets and is_number else tuple(targets)


def as_target(value: Any) -> Any:
    """Return one sample's target with arrays of NumPy in it; a single number is a plain one."""
    if is_array(value):
        found = as_array(value)
        return found.item() if found.ndim == 0 else found
    if isinstance(value, Mapping):
        return {name: as_target(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_target(each) for each in value]
    return value


def targets_of_batch(labels: Any, count: int) -> Sequence[Any]:
    """Return the target of each sample in a batch: entries of an array, of a list, or of a dict."""
    if isinstance(labels, Mapping):
        columns = {name: targets_of_batch(each, count) for name, each in labels.items()}
        return [{name: each[at] for name, each in columns.items()} for at in range(count)]
    if is_array(labels):
        labels = as_array(labels)
    is_list = isinstance(labels, list | tuple) or np.ndim(labels) > 0
    if not is_list or len(labels) != count:
        given = f"{len(labels)} labels" if is_list else f"the label {labels!r}"
        raise DatasetError(
            f"samples gives a batch of {count} with {given}: give one label for each sample."
        )
    return [as_target(each) for each in labels]
