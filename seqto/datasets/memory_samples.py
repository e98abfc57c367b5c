"""Samples from a Python program: arrays, or any iterable of samples."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.arrays import common_length, named, row_digest
from seqto.datasets.draw import CalibrationSize, Draw, EvaluationSize, split_drawn
from seqto.datasets.fit import as_wanted, check_fits
from seqto.datasets.targets import as_array, as_target, as_targets, is_array, targets_of_batch
from seqto.errors import ConfigError, DatasetError
from seqto.types import Arrays, Splits, Targets, TensorSpec

_WHERE = "samples"


@dataclass(config=ConfigDict(extra="forbid", arbitrary_types_allowed=True), kw_only=True)
class InMemorySamples:
    """Arrays by input name, one array, or an iterable of samples, batches or pairs with labels.

    The number of axes of the model's input tells single samples and batches apart. A label is
    whatever the task compares outputs with: a class, a text, boxes in a dict. Samples are drawn
    once with the seed. From an iterable that is not a list, only as many as needed are read.
    """

    name: str = "samples"
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    samples: Any = field(default=None, compare=False, repr=False)
    labels: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse use from the command line, where nothing is in memory."""
        if self.samples is None:
            raise ConfigError(
                "dataset=memory has no samples: it is for seqto.tune(model, samples) in Python. On "
                "the command line choose dataset=images or dataset=npz."
            )

    def has(self, name: str) -> bool:
        """Return whether the samples have values for the input of this name."""
        if isinstance(self.samples, Mapping):
            return name in self.samples
        return not is_array(self.samples) and name in _names(self._first())

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        arrays, labels = self._collected(inputs)
        arrays = as_wanted(named(arrays, inputs), inputs)
        remedy = "bring them to that type and shape first, with astype, transpose or reshape"
        check_fits(arrays, inputs, self.name, remedy)
        total = common_length(arrays, labels, _WHERE)
        drawn = self._draw.of(total, lambda index: row_digest(arrays, index))
        return split_drawn(arrays, labels, drawn)

    @property
    def _draw(self) -> Draw:
        return Draw(self.calibration_size, self.evaluation_size, self.seed, _WHERE)

    def _first(self) -> Any:
        """Return the first item of the iterable, which an iterator then gives again."""
        items = iter(_iterable(self.samples, self.seed))
        found = next(items, None)
        if items is self.samples and found is not None:
            self.samples = itertools.chain([found], items)
        return found

    def _collected(self, inputs: Sequence[TensorSpec]) -> tuple[Arrays, Targets | None]:
        """Return the samples as arrays, and their labels if they have any."""
        samples, labels = self.samples, self.labels
        if not isinstance(samples, Mapping) and not is_array(samples):
            if labels is not None:
                raise ConfigError(
                    "labels= belongs to arrays: an iterable gives pairs of a sample and its label."
                )
            samples, labels = self._drained(inputs)
            # An iterator can be read only once, and later calls must get the same samples.
            self.samples, self.labels = samples, labels
        elif is_array(samples):
            samples = {inputs[0].name if len(inputs) == 1 else self.name: samples}
        arrays = {str(name): as_array(value) for name, value in samples.items()}
        return arrays, None if labels is None else as_targets(labels)

    def _drained(self, inputs: Sequence[TensorSpec]) -> tuple[Arrays, Targets | None]:
        """Read the iterable, and return its samples stacked per input."""
        whole = isinstance(self.samples, list | tuple)
        rows = _rows(_iterable(self.samples, self.seed), inputs, self.name)
        found = list(rows if whole else itertools.islice(rows, self._draw.most))
        if not found:
            raise DatasetError(
                "samples gives nothing: an iterator that was used before is at its end. Give a "
                "list, an array, or a new iterator."
            )
        labels = [label for _, label in found]
        if any(label is None for label in labels) and any(label is not None for label in labels):
            other = next(
                at for at, each in enumerate(labels) if (each is None) != (labels[0] is None)
            )
            raise DatasetError(
                f"some samples have a label and others have none (sample {other} is the first that "
                "differs): give all or none."
            )
        return (
            {spec.name: _stacked([row[spec.name] for row, _ in found], spec) for spec in inputs},
            None if labels[0] is None else as_targets(labels),
        )


def _iterable(samples: Any, seed: int) -> Iterable[Any]:
    """Return what gives one sample or batch after the other.

    What has samples by number, such as a dataset of torch, gives them in an order that is drawn:
    they often lie there class by class.
    """
    if isinstance(samples, Iterable):
        return samples
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        order = np.random.RandomState(seed).permutation(len(samples))
        return (samples[int(index)] for index in order)
    raise ConfigError(
        f"samples cannot be of type {type(samples).__name__}: give an array, a dict of arrays by "
        "input name, an iterable of samples, or the path of a folder of images or of a .npz file."
    )


def _rows(
    items: Iterable[Any], inputs: Sequence[TensorSpec], name: str
) -> Iterator[tuple[Arrays, Any]]:
    """Yield single samples with their labels, from an iterable of samples or batches."""
    for number, item in enumerate(items):
        try:
            yield from _rows_of(item, inputs, name)
        except DatasetError as error:
            raise DatasetError(f"item {number} of samples, counted from 0: {error}") from error


def _rows_of(item: Any, inputs: Sequence[TensorSpec], name: str) -> Iterator[tuple[Arrays, Any]]:
    """Yield the samples of one item, a sample or a batch, with their labels."""
    arrays, label = _pair(item, inputs, name)
    sizes = {_batch_of(arrays[spec.name], spec) for spec in inputs}
    if sizes == {None}:
        yield arrays, None if label is None else as_target(label)
        return
    if len(sizes) != 1:
        raise DatasetError("samples has a batch whose inputs have different lengths.")
    count = sizes.pop() or 0
    labels = [None] * count if label is None else targets_of_batch(label, count)
    for at, each in enumerate(labels):
        yield {name: array[at] for name, array in arrays.items()}, each


def _pair(item: Any, inputs: Sequence[TensorSpec], name: str) -> tuple[Arrays, Any]:
    """Return the inputs by name, and the label, of one item of an iterable."""
    sample, label = _apart(item)
    if isinstance(sample, Mapping):
        arrays = {str(name): as_array(value) for name, value in sample.items()}
        given = ", ".join(arrays) or "nothing"
    elif is_array(sample) and len(inputs) == 1:
        arrays = {inputs[0].name: as_array(sample)}
        given = ""
    else:
        arrays, given = {}, f"a {type(sample).__name__}"
    if any(spec.name not in arrays for spec in inputs):
        raise DatasetError(
            f"model wants {', '.join(map(str, inputs))}, dataset {name} gives {given}: give an "
            "array for a model with one input, else a dict of arrays by input name, each alone or "
            "in a pair with its label; an input that never changes goes into dataset.constants."
        )
    return {spec.name: arrays[spec.name] for spec in inputs}, label


def _apart(item: Any) -> tuple[Any, Any]:
    """Return the sample and the label of an item, which may be a pair of both."""
    if isinstance(item, list | tuple) and len(item) in (1, 2) and _is_sample(item[0]):
        return item[0], item[1] if len(item) == 2 else None
    return item, None


def _names(item: Any) -> Iterable[str]:
    """Return the names of the inputs that an item has values for."""
    sample, _ = _apart(item)
    return map(str, sample) if isinstance(sample, Mapping) else ()


def _batch_of(array: np.ndarray, spec: TensorSpec) -> int | None:
    """Return how many samples an array holds, or None if it is a single one."""
    axes = len(spec.shape)
    if array.ndim == axes - 1:
        return None
    pairs = zip(spec.shape[1:], array.shape[1:], strict=False)
    if array.ndim == axes and all(wanted in (None, given) for wanted, given in pairs):
        return len(array)
    raise DatasetError(
        f"samples gives an array of shape {list(array.shape)}, but the model input {spec} has "
        f"{axes} axes, including the one that counts samples."
    )


def _stacked(arrays: Sequence[np.ndarray], spec: TensorSpec) -> np.ndarray:
    for number, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DatasetError(
                f"samples of different shapes, {list(arrays[0].shape)} and {list(array.shape)} "
                f"(sample {number}), for the model input {spec}: pad or crop them to one shape "
                "first."
            )
    return np.stack(arrays)


def _is_sample(value: Any) -> bool:
    return is_array(value) or isinstance(value, Mapping)
