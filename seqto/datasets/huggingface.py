"""Samples from Hugging Face's `datasets` library: from its hub, or from a local folder."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.arrays import row_digest
from seqto.datasets.draw import CalibrationSize, Draw, EvaluationSize, split_arrays
from seqto.datasets.fit import as_wanted, check_fits, single_input
from seqto.datasets.preprocess import ImagePreprocess
from seqto.errors import DatasetError
from seqto.types import Arrays, Splits, TensorSpec

_SAVED = ("state.json", "dataset_dict.json")
"""The files by which a folder of `save_to_disk` is recognised: one dataset, or several splits."""


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class HuggingFaceDataset:
    """A split of a dataset: a preprocessed image column, or columns named like the inputs.

    Samples are drawn once with the seed; without an evaluation size, all that calibration leaves
    are used.
    """

    path: str = field(compare=False)
    preprocess: ImagePreprocess
    subset: str | None = None
    split: str = "validation"
    image: str | None = "image"
    label: str | None = "label"
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    name: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        self.name = Path(self.path).name

    def has(self, name: str) -> bool:
        """Return whether a column has values for the input of this name."""
        return self.image is None and name in self._table().column_names

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        table = self._table()
        rows = _Rows(table, self._reader(table, inputs))
        draw = Draw(self.calibration_size, self.evaluation_size, self.seed, self.path)
        drawn = draw.of(len(table), rows.digest)
        order = drawn.order
        arrays = as_wanted(rows.stacked(order, self.path), inputs)
        check_fits(arrays, inputs, self.name)
        return split_arrays(arrays, self._labels(table, order), drawn)

    def _table(self) -> Any:
        """Return the split as a table of the library."""
        try:
            import datasets
        except ImportError as error:
            raise DatasetError(
                "dataset=hf needs the datasets library, which is not installed: "
                "pip install 'seqto[hf]' (in a checkout '.[hf]')."
            ) from error
        folder = Path(self.path).expanduser()
        try:
            if any((folder / name).is_file() for name in _SAVED):
                found = datasets.load_from_disk(str(folder))
                return found[self.split] if isinstance(found, datasets.DatasetDict) else found
            source = str(folder) if folder.exists() else self.path
            return datasets.load_dataset(source, self.subset, split=self.split)
        except Exception as error:  # The library's errors have no common base.
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise DatasetError(
                f"dataset {self.path} cannot be loaded, split {self.split!r} ({reason}): check "
                "dataset.path, dataset.subset, dataset.split and the network."
            ) from error

    def _reader(
        self, table: Any, inputs: Sequence[TensorSpec]
    ) -> Callable[[Mapping[str, Any]], Arrays]:
        """Return the function that makes a sample from a row of the table."""
        if self.image is None:
            names = [spec.name for spec in inputs]
            missing = [name for name in names if name not in table.column_names]
            if missing:
                raise self._missing(missing[0], table, "which the model takes")
            return lambda row: {name: np.asarray(row[name]) for name in names}
        column = self.image
        if column not in table.column_names:
            hint = "dataset.image names it; set it to null if columns are named like the inputs"
            raise self._missing(column, table, hint)
        spec = single_input(inputs, self.name)
        target = self.preprocess.target(spec)
        return lambda row: {spec.name: self.preprocess.apply(row[column], target)}

    def _labels(self, table: Any, order: Sequence[int]) -> np.ndarray | None:
        if self.label is None:
            return None
        if self.label not in table.column_names:
            raise self._missing(
                self.label, table, "dataset.label names it; set it to null if there are no labels"
            )
        labels = np.asarray(table.select(order)[self.label])
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise DatasetError(
                f"column {self.label!r} of dataset {self.path} has {labels.dtype.name} "
                "values, not class indices: set dataset.label to another column, or to null."
            )
        return labels

    def _missing(self, column: str, table: Any, hint: str) -> DatasetError:
        return DatasetError(
            f"dataset {self.path} has no column {column!r} ({hint}). It has: "
            f"{', '.join(table.column_names)}."
        )


class _Rows:
    """The rows of a table as samples, each read once."""

    def __init__(self, table: Any, read: Callable[[Mapping[str, Any]], Arrays]) -> None:
        self._table = table
        self._read = read
        self._known: dict[int, Arrays] = {}

    def digest(self, index: int) -> str:
        """Return the hex digest of a sample's content."""
        if index not in self._known:
            self._known[index] = self._read(self._table[index])
        sample = self._known[index]
        shapes = repr([(name, array.shape, array.dtype) for name, array in sample.items()])
        rows = {name: array[None] for name, array in sample.items()}
        return hashlib.sha256(f"{shapes}{row_digest(rows, 0)}".encode()).hexdigest()

    def stacked(self, order: Sequence[int], path: str) -> Arrays:
        """Return these samples as one array per input."""
        samples = [self._known[index] for index in order]
        for name in samples[0]:
            if len({sample[name].shape for sample in samples}) > 1:
                raise DatasetError(
                    f"column {name!r} of dataset {path} has rows of different shapes: pad or crop "
                    "them to the same one first."
                )
        return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
