"""Where samples come from."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from seqto.types import Splits, TensorSpec


class Dataset(Protocol):
    """Where samples come from.

    The two splits share no sample, by content or by id, and are the same each time. The fingerprint
    changes with their content. Inputs are finite, have the names of the model's inputs, and count
    samples on their first axis; targets have one entry per sample, and classes are an array of
    int64. An input that the dataset cannot fill is refused: `model wants 2 inputs: ... dataset
    <name> gives ...`, or `model input 'x' float32[?, 16] ...`.
    """

    name: str
    chunk_size: int
    """At most how many samples to feed to a model at a time."""

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits in the shapes of the model's inputs, or raise DatasetError."""
        ...


@runtime_checkable
class HasInputs(Protocol):
    """Optional, for a dataset that may have values for a model's states, which else start at 0."""

    def has(self, name: str) -> bool:
        """Return whether it has values for the input of this name."""
        ...
