"""Samples to calibrate and to evaluate on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from seqto.types.outputs import Targets

Arrays = Mapping[str, np.ndarray]
"""Arrays by tensor name; the first axis counts samples."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Preprocessed inputs by name, with labels if there are any.

    `fixed_batch` is the model's batch size, if the model fixes it.
    """

    inputs: Arrays
    ids: tuple[str, ...]
    targets: Targets | None = None
    fixed_batch: int | None = None
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    mask: np.ndarray | None = None

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

    def batches(self, size: int) -> Iterator[Arrays]:
        """Yield the inputs in order, at most `size` samples at a time.

        A fixed batch size overrides `size`, and the last batch is then filled up with copies of the
        last sample.
        """
        size = self.fixed_batch or size
        for start in range(0, len(self), size):
            batch = {name: array[start : start + size] for name, array in self.inputs.items()}
            missing = start + size - len(self)
            if self.fixed_batch and missing > 0:
                batch = {
                    name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
                    for name, array in batch.items()
                }
            yield batch

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
