"""Samples from a file of NumPy arrays, one array per model input."""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.draw import CalibrationSize, Draw, EvaluationSize, split_drawn
from seqto.datasets.fit import as_wanted, check_fits
from seqto.errors import DatasetError
from seqto.types import Arrays, Splits, Targets, TensorSpec


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class ArrayFile:
    """A .npz file with one array per model input, by its name, and optionally labels.

    Labels have one entry per sample, of any kind: class indices, masks, padded boxes, strings.

    A single array feeds a single input, whatever their names. Samples are drawn once with the seed;
    an evaluation size of `all` takes all that calibration leaves.
    """

    path: str = field(compare=False)
    labels: str | Literal[False] = "labels"
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    name: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        self.name = Path(self.path).stem

    def has(self, name: str) -> bool:
        """Return whether the file has an array for the input of this name."""
        return name != self.labels and name in _arrays(Path(self.path).expanduser())

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        found = dict(_arrays(Path(self.path).expanduser()))
        labels = found.pop(self.labels, None) if self.labels else None
        arrays = as_wanted(named(found, inputs), inputs)
        check_fits(arrays, inputs, self.name)
        total = common_length(arrays, labels, self.path)
        draw = Draw(self.calibration_size, self.evaluation_size, self.seed, self.path)
        drawn = draw.of(total, lambda index: row_digest(arrays, index))
        return split_drawn(arrays, labels, drawn)


def row_digest(arrays: Arrays, index: int) -> str:
    """Return the hex digest of one sample's content."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name][index]).tobytes())
    return digest.hexdigest()


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Return the file's arrays by name."""
    if not path.is_file():
        raise DatasetError(f"{path} does not exist: set dataset.path to a .npz file.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except MemoryError as error:
        raise DatasetError(f"{path} does not fit into memory ({error}): give fewer.") from error
    except (OSError, EOFError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"{path} cannot be read as a .npz file ({error}): write it with numpy.savez(path, "
            "**{'<input name>': array, ...}), arrays of numbers only."
        ) from error


def named(found: Arrays, inputs: Sequence[TensorSpec]) -> Arrays:
    """Return the arrays that the model takes; a single array fits a single input by any name."""
    if len(found) == len(inputs) == 1:
        return {inputs[0].name: next(iter(found.values()))}
    wanted = {spec.name for spec in inputs}
    # Other arrays are ignored, unless one is missing: then they help to explain the error.
    return {name: array for name, array in found.items() if name in wanted or wanted - set(found)}


def common_length(arrays: Arrays, labels: Targets | None, path: str) -> int:
    """Return the number of samples; raise if the arrays have different lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if labels is not None:
        if isinstance(labels, np.ndarray) and labels.ndim == 0:
            raise DatasetError(f"{path}: the labels are one value, but need one per sample.")
        lengths["the labels"] = len(labels)
    if len(set(lengths.values())) != 1:
        counts = ", ".join(f"{count} of {name}" for name, count in lengths.items())
        raise DatasetError(f"{path} has {counts}: each array needs one entry per sample.")
    return next(iter(lengths.values()))
