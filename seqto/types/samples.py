"""Samples to calibrate and to evaluate on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from seqto.freeing import let_go
from seqto.types.model_outputs import Targets
from seqto.types.reading import BatchAxes

Arrays = Mapping[str, np.ndarray]
"""Arrays by tensor name; the first axis counts samples."""

_HELD_BYTES = 2**24
"""After about so many bytes of samples, those that were read from a file are let go."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Preprocessed inputs by name, with targets if there are any.

    `mask` tells which positions of a sample count, `[samples, positions]`: the others are padding.
    `fixed_batch` is the model's batch size, if the model fixes it. `batch_axes` says where the
    model has the axis of the samples, if it is not the first: None is for nowhere.
    """

    inputs: Arrays
    ids: tuple[str, ...]
    targets: Targets | None = None
    mask: np.ndarray | None = None
    fixed_batch: int | None = None
    batch_axes: BatchAxes = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, count: int) -> "Samples":
        """Return the first `count` samples."""
        return replace(
            self,
            inputs={name: array[:count] for name, array in self.inputs.items()},
            ids=self.ids[:count],
            targets=None if self.targets is None else self.targets[:count],
            mask=None if self.mask is None else self.mask[:count],
        )

    def after(self, count: int) -> "Samples":
        """Return the samples behind the first `count`."""
        return replace(
            self,
            inputs={name: array[count:] for name, array in self.inputs.items()},
            ids=self.ids[count:],
            targets=None if self.targets is None else self.targets[count:],
            mask=None if self.mask is None else self.mask[count:],
        )

    def batches(self, size: int, order: Iterable[int] | None = None) -> Iterator[Arrays]:
        """Yield what to feed the model with, in order, at most `size` samples at a time.

        A fixed batch size overrides `size`, and the last batch is then filled up with copies of the
        last sample. Where an input has no axis for samples, they are fed one at a time. `order` has
        the numbers of the batches, if some are to come before others.
        """
        size = 1 if None in self.batch_axes.values() else self.fixed_batch or size
        held = self._held()
        numbers = range(-(-len(self) // size)) if order is None else order
        for read, number in enumerate(numbers):
            if read * size % held < size:
                self._let_go()
            yield self._batch(number * size, size)
        self._let_go()

    def _batch(self, start: int, size: int) -> Arrays:
        batch = {name: array[start : start + size] for name, array in self.inputs.items()}
        missing = start + size - len(self)
        if self.fixed_batch and missing > 0:
            batch = {
                name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
                for name, array in batch.items()
            }
        return {name: self._as_fed(name, array) for name, array in batch.items()}

    def _held(self) -> int:
        """Return how many samples are read from a file before they are let go."""
        total = sum(array.nbytes for array in self.inputs.values())
        return max(_HELD_BYTES * len(self) // max(total, 1), 1)

    def _let_go(self) -> None:
        for array in self.inputs.values():
            let_go(array)

    def _as_fed(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return a batch with the axis of the samples where the model has it."""
        axis = self.batch_axes.get(name, 0)
        if axis == 0:
            return array
        return np.asarray(array[0] if axis is None else np.moveaxis(array, 0, axis), order="C")

    def first_batches(self, count: int) -> Iterator[Arrays]:
        """Yield the first `count` samples, in the smallest batches that the model takes."""
        return islice(self.batches(1), -(-count // (self.fixed_batch or 1)))


@dataclass(frozen=True, eq=False)
class Splits:
    """Disjoint samples to calibrate and to evaluate on, with a key of their content."""

    calibration: Samples
    evaluation: Samples
    fingerprint: str


@dataclass(frozen=True)
class DataSplit:
    """Samples of a study and their purpose: `context` is `calibration` or `evaluation`.

    The same digest means the same content; `source` is their path, or the dataset's class.
    """

    name: str
    context: str
    digest: str
    source: str
    samples: int
