"""How segmenters write the class of each pixel into an output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from seqto.errors import ConfigError, ModelError
from seqto.tasks.output_forms import VARIES, Form, forms_of, plain, the_one
from seqto.types import Outputs

MOST_IDS = 4096
"""Integers from here on are no classes."""

_TOLERANCE = 1e-3
_CHUNK = 2**20
"""Values that are looked at in one go: large images with many classes must not fill the memory."""


class Values(Enum):
    """What a number at a pixel is."""

    IDS = auto()
    LOGITS = auto()
    DISTRIBUTION = auto()
    PROBABILITIES = auto()
    """Of each class on its own: they do not add up to one."""


@dataclass(frozen=True)
class PixelLayout:
    """Where the classes of a pixel stand, and what their values are.

    Without an axis of classes there is one value per pixel: an id, or how sure a mask is of it.
    """

    output: str
    axis: int | None
    classes: int
    values: Values
    threshold: float = 0.0

    @property
    def is_mask(self) -> bool:
        """Whether pixels are in an object or not."""
        return self.axis is None and self.values is not Values.IDS

    def entries(self, outputs: Outputs) -> Iterator[np.ndarray]:
        """Yield the output's entries."""
        return map(plain, outputs[self.output])

    def class_map(self, entry: np.ndarray) -> np.ndarray | None:
        """Return the class of each pixel; None if the entry is not usable."""
        if not self.is_usable(entry):
            return None
        if self.axis is None:
            return entry if self.values is Values.IDS else (entry >= self.threshold).astype(int)
        found = [chunk.argmax(axis=0) for chunk in self.chunks(entry)]
        return np.concatenate(found).reshape(np.delete(entry.shape, self.axis))

    def is_usable(self, entry: np.ndarray) -> bool:
        """Return whether an entry has numbers, or ids, at all pixels."""
        if not entry.size:
            return False
        if self.values is Values.IDS:
            return bool(entry.min() >= 0 and entry.max() < MOST_IDS)
        # The maximum is NaN if any value is; minus infinity only rules out a class.
        return bool(np.isfinite(entry.max()))

    def chunks(self, entry: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the values of some pixels at a time, with one row per class."""
        if self.axis is None:
            rows = entry.reshape(1, -1)
        elif self.axis == entry.ndim - 1:
            rows = entry.reshape(-1, entry.shape[-1]).T
        else:
            rows = np.moveaxis(entry, self.axis, 0).reshape(entry.shape[self.axis], -1)
        step = max(_CHUNK // len(rows), 1)
        for start in range(0, rows.shape[1], step):
            yield rows[:, start : start + step]


def layout_of_pixels(
    outputs: Outputs, output: str | None, axis: int | None, threshold: float | None
) -> PixelLayout:
    """Return the layout of these outputs, from what users said and from their shapes."""
    forms = forms_of(outputs)
    fitting = [form for form in forms if _is_image(form)]
    form = the_one("classes of pixels", "task.output", output, fitting, forms)
    if form not in fitting:
        raise ModelError(
            f"the model's output {form}, but task=segmentation expects classes, height and width, "
            "or height and width. Choose another task=, or task.output."
        )
    entries = [plain(entry) for entry in outputs[form.name]]
    if len(form.shape) == 2:
        if axis is not None:
            raise ConfigError(
                f"task.axis={axis} is for classes, but the model's output {form}: one value a "
                "pixel. Leave task.axis out."
            )
        return _single(form, entries, threshold)
    if threshold is not None:
        raise ConfigError(
            f"task.threshold is for one value a pixel, but the model's output {form}, with classes "
            "of which the best one counts. Leave task.threshold out."
        )
    axis = _class_axis(form, axis)
    return PixelLayout(form.name, axis, form.shape[axis], _values_of_classes(entries, axis))


def _is_image(form: Form) -> bool:
    return len(form.shape) in (2, 3) and 1 not in form.shape and 0 not in form.shape


def _single(form: Form, entries: Sequence[np.ndarray], threshold: float | None) -> PixelLayout:
    if form.is_integer and threshold is None:
        _check_ids(form, entries)
        return PixelLayout(form.name, None, _id_count(entries), Values.IDS)
    inside = _within_0_and_1(entries)
    if not inside and _are_whole(entries):
        raise ModelError(
            f"the model's output {form}, with whole numbers that are no integers. If they are "
            "classes, cast them to int64 in the model; if they are logits, set task.threshold=0."
        )
    if threshold is None:
        threshold = 0.5 if inside else 0.0
    values = Values.PROBABILITIES if inside else Values.LOGITS
    return PixelLayout(form.name, None, 2, values, threshold)


def _check_ids(form: Form, entries: Sequence[np.ndarray]) -> None:
    low, high = min(entry.min() for entry in entries), max(entry.max() for entry in entries)
    if low < 0 or high >= MOST_IDS:
        raise ModelError(
            f"the model's output {form}, with integers from {low} to {high}, which are no classes. "
            "Choose another task=, or task.output."
        )


def _id_count(entries: Sequence[np.ndarray]) -> int:
    return max(int(entry.max()) for entry in entries) + 1


def _class_axis(form: Form, axis: int | None) -> int:
    if axis is None:
        axis = _guessed_axis(form.shape)
    if axis is None or not -3 <= axis < 3 or form.shape[axis] == VARIES:
        raise ModelError(
            f"the model's output {form}, which does not tell where the classes are. Set task.axis "
            "to 0 (classes, height, width) or 2 (height, width, classes), or choose another task=."
        )
    return axis % 3


def _guessed_axis(shape: tuple[int, ...]) -> int | None:
    """Return the axis of the classes: beside a square, or much shorter than the others."""
    fixed = [axis for axis in (0, 2) if shape[axis] != VARIES]
    if shape[0] != shape[2] and shape[1] in (shape[0], shape[2]) and shape[1] != VARIES:
        return 2 if shape[0] == shape[1] else 0
    if VARIES in shape:
        return fixed[0] if len(fixed) == 1 else None
    short, middle, _ = sorted(shape)
    axis = shape.index(short)
    return axis if axis != 1 and 2 * short <= middle else None


def _values_of_classes(entries: Sequence[np.ndarray], axis: int) -> Values:
    if not _within_0_and_1(entries):
        return Values.LOGITS
    sums = next((each.sum(axis=axis) for each in entries if np.isfinite(each).all()), np.ones(1))
    if (np.abs(sums - 1) <= _TOLERANCE).all():
        return Values.DISTRIBUTION
    return Values.PROBABILITIES


def _within_0_and_1(entries: Sequence[np.ndarray]) -> bool:
    # What is not usable tells nothing; the maximum is NaN if any value is.
    usable = [entry for entry in entries if entry.size and np.isfinite(entry.max())]
    low = min((entry.min() for entry in usable), default=0.0)
    high = max((entry.max() for entry in usable), default=0.0)
    return bool(low >= -_TOLERANCE and high <= 1 + _TOLERANCE)


def _are_whole(entries: Sequence[np.ndarray]) -> bool:
    return all(bool((entry == np.round(entry)).all()) for entry in entries)
