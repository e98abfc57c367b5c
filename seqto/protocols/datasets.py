"""Where samples come from."""

from collections.abc import Sequence
from typing import Protocol

from seqto.types import Splits, TensorSpec


class Dataset(Protocol):
    """Where samples come from.

    The two splits have no sample in common, by content and by id, and are the same each time. The
    fingerprint changes with their content. Inputs are finite, have the names that the model gives
    them, and labels are int64, one per sample. An input that the dataset cannot fill is refused:
    `model wants 2 inputs: ... dataset <name> gives ...`, or `model input 'x' float32[?, 16] ...`.
    """

    name: str
    chunk_size: int
    """How many samples may be fed to a model at a time."""

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits in the shapes that the model's inputs ask for; raise DatasetError."""
        ...
