"""Samples from a Python program: arrays, or any iterable of samples."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.arrays import common_length, named, row_digest
from seqto.datasets.draw import Draw, split_drawn
from seqto.datasets.fit import as_wanted, check_fits
from seqto.errors import ConfigError, DatasetError
from seqto.types import Arrays, Splits, TensorSpec

_CALIBRATION, _EVALUATION = 100, 300
"""How many samples are used by default, if there are enough."""

_FEWEST = 20
"""With fewer samples, a single one that changes already exceeds a limit of 5 %."""

_WHERE = "samples"


@dataclass(config=ConfigDict(extra="forbid", arbitrary_types_allowed=True), kw_only=True)
class InMemorySamples:
    """Arrays by input name, one array, or an iterable of samples, batches or pairs with labels.

    The number of axes of the model's input tells single samples and batches apart. Samples are
    drawn once with the seed. From an iterable that is not a list, only as many as needed are read.
    """

    name: str = "samples"
    calibration_size: PositiveInt | None = None
    evaluation_size: PositiveInt | None = None
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

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        arrays, labels = self._collected(inputs)
        arrays = as_wanted(named(arrays, inputs), inputs)
        remedy = "bring them to that type and shape first, with astype, transpose or reshape"
        check_fits(arrays, inputs, self.name, remedy)
        total = common_length(arrays, labels, _WHERE)
        digests = [row_digest(arrays, index) for index in range(total)]
        draw = self._draw(len(set(digests)))
        drawn = draw.of(total, digests.__getitem__)
        return split_drawn(arrays, labels, drawn, draw.calibration)

    def _collected(self, inputs: Sequence[TensorSpec]) -> tuple[Arrays, np.ndarray | None]:
        """Return the samples as arrays, and their labels if they have any."""
        samples, labels = self.samples, self.labels
        if not isinstance(samples, Mapping) and not _is_array(samples):
            if labels is not None:
                raise ConfigError(
                    "labels= belongs to arrays: an iterable gives pairs of a sample and its label."
                )
            samples, labels = self._drained(inputs)
            # An iterator can be read only once, and later calls must get the same samples.
            self.samples, self.labels = samples, labels
        elif _is_array(samples):
            samples = {inputs[0].name if len(inputs) == 1 else self.name: samples}
        arrays = {str(name): as_array(value) for name, value in samples.items()}
        return arrays, None if labels is None else as_array(labels)

    def _drained(self, inputs: Sequence[TensorSpec]) -> tuple[Arrays, np.ndarray | None]:
        """Read the iterable, and return its samples stacked per input."""
        whole = isinstance(self.samples, list | tuple)
        wanted = (self.calibration_size or _CALIBRATION) + (self.evaluation_size or _EVALUATION)
        rows = _rows(_iterable(self.samples, self.seed), inputs)
        found = list(rows if whole else itertools.islice(rows, wanted))
        if not found:
            raise DatasetError(
                "samples gives nothing: an iterator that was used before is at its end. Give a "
                "list, an array, or a new iterator."
            )
        labels = [label for _, label in found]
        if any(label is None for label in labels) and any(label is not None for label in labels):
            raise DatasetError("some samples have a label and others have none: give all or none.")
        return (
            {spec.name: _stacked([row[spec.name] for row, _ in found], spec) for spec in inputs},
            None if labels[0] is None else np.asarray(labels),
        )

    def _draw(self, distinct: int) -> Draw:
        """Return how many samples to draw: if there are few, a quarter of them to calibrate on."""
        calibration, evaluation = self.calibration_size, self.evaluation_size
        few = calibration is None and evaluation is None and distinct < _CALIBRATION + _EVALUATION
        if not few:
            calibration = calibration or _CALIBRATION
            enough = evaluation is not None or distinct >= calibration + _EVALUATION
            return Draw(
                calibration, (evaluation or _EVALUATION) if enough else None, self.seed, _WHERE
            )
        if distinct < _FEWEST:
            raise DatasetError(
                f"{distinct} different samples are too few to calibrate and to evaluate on: give "
                f"{_FEWEST} or more, {_CALIBRATION + _EVALUATION} for figures to rely on."
            )
        return Draw(distinct // 4, None, self.seed, _WHERE)


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


def _rows(items: Iterable[Any], inputs: Sequence[TensorSpec]) -> Iterator[tuple[Arrays, Any]]:
    """Yield single samples with their labels, from an iterable of samples or batches."""
    for item in items:
        arrays, label = _pair(item, inputs)
        sizes = {_batch_of(arrays[spec.name], spec) for spec in inputs}
        if sizes == {None}:
            yield arrays, _label(label, ())
            continue
        if len(sizes) != 1:
            raise DatasetError("samples has a batch whose inputs have different lengths.")
        count = sizes.pop() or 0
        labels = _label(label, (count,))
        for at in range(count):
            row = {name: array[at] for name, array in arrays.items()}
            yield row, None if labels is None else labels[at]


def _label(label: Any, shape: tuple[int, ...]) -> Any:
    """Return a sample's label as a plain number, or those of a batch as a list."""
    if label is None:
        return None
    found = as_array(label)
    if found.shape != shape:
        wanted = f"{shape[0]} class indices" if shape else "one class index"
        raise DatasetError(
            f"samples gives labels of shape {list(found.shape)} where there have to be {wanted}: "
            "give the number of each sample's class."
        )
    return found.tolist()


def _pair(item: Any, inputs: Sequence[TensorSpec]) -> tuple[Arrays, Any]:
    """Return the inputs by name, and the label, of one item of an iterable."""
    label = None
    if isinstance(item, list | tuple) and len(item) in (1, 2) and _is_sample(item[0]):
        item, label = item[0], item[1] if len(item) == 2 else None
    if isinstance(item, Mapping):
        arrays = {str(name): as_array(value) for name, value in item.items()}
    elif _is_array(item) and len(inputs) == 1:
        arrays = {inputs[0].name: as_array(item)}
    else:
        wanted = ", ".join(map(str, inputs))
        raise DatasetError(
            f"samples gives a {type(item).__name__}, but the model wants {wanted}: give an array "
            "for a model with one input, else a dict of arrays by input name, each alone or in a "
            "pair with its label."
        )
    if missing := [spec.name for spec in inputs if spec.name not in arrays]:
        raise DatasetError(
            f"samples gives {', '.join(arrays) or 'nothing'}, but the model also wants "
            f"{', '.join(missing)}."
        )
    return arrays, label


def _batch_of(array: np.ndarray, spec: TensorSpec) -> int | None:
    """Return how many samples an array holds, or None if it is a single one."""
    axes = len(spec.shape)
    if array.ndim == axes - 1:
        return None
    if array.ndim == axes:
        return len(array)
    raise DatasetError(
        f"samples gives an array of shape {list(array.shape)}, but the model input {spec} has "
        f"{axes} axes, including the one that counts samples."
    )


def _stacked(arrays: Sequence[np.ndarray], spec: TensorSpec) -> np.ndarray:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        one, other = sorted(map(list, shapes))[:2]
        raise DatasetError(
            f"samples of different shapes, {one} and {other}, for the model input {spec}: pad or "
            "crop them to one shape first."
        )
    return np.stack(arrays)


def as_array(value: Any) -> np.ndarray:
    """Return an array, or any library's tensor, as a NumPy array."""
    # A torch tensor must leave its computation graph and its device first.
    for leave in ("detach", "cpu"):
        if hasattr(value, leave):
            value = getattr(value, leave)()
    return np.asarray(value)


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__")


def _is_sample(value: Any) -> bool:
    return _is_array(value) or isinstance(value, Mapping)
