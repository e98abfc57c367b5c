"""scikit-learn's handwritten digits, which need no download."""

import importlib.util
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.digits_split import split
from seqto.datasets.fit import check_fits, single_input
from seqto.errors import ConfigError, DatasetError
from seqto.types import Samples, Splits, TensorSpec, content_key, sha256


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class DigitsDataset:
    """8x8 greyscale digits that the embedded model was not trained on."""

    calibration_size: PositiveInt = 100
    evaluation_size: PositiveInt = 800
    chunk_size: PositiveInt = 200
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    path: str | None = None
    name: str = field(default="digits", init=False)

    def __post_init__(self) -> None:
        """Refuse a path: whoever gives one means other data."""
        if self.path is not None:
            raise ConfigError(
                f"dataset=digits is embedded and takes no dataset.path={self.path}: add "
                "dataset=images, or a model that is made for images."
            )

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the name of the model's only input."""
        spec = single_input(inputs, self.name)
        drawn = split()
        calibration = _samples(self._drawn(drawn.calibration, "calibration_size"), spec.name)
        evaluation = _samples(self._drawn(drawn.evaluation, "evaluation_size"), spec.name)
        check_fits(calibration.inputs, inputs, self.name)
        return Splits(calibration, evaluation, _fingerprint([calibration, evaluation], spec))

    def _drawn(self, indices: np.ndarray, option: str) -> np.ndarray:
        """Return as many of these indices as the option asks for, shuffled with the seed."""
        size = getattr(self, option)
        if size > len(indices):
            raise DatasetError(
                f"dataset.{option}={size} is more than dataset digits has: "
                f"set it to at most {len(indices)}."
            )
        return np.random.RandomState(self.seed).permutation(indices)[:size]


def _samples(order: np.ndarray, input_name: str) -> Samples:
    """Return these digits, with pixels from 0 to 1."""
    pixels, labels = read_digits()
    images = (pixels[order, None] / 16).astype(np.float32)
    ids = tuple(f"digit-{index:04}" for index in order)
    return Samples({input_name: images}, ids, labels[order].astype(np.int64))


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of `sklearn.datasets.load_digits()`."""
    # Read from its file: the import takes as long as quantizing and running the embedded model.
    found = importlib.util.find_spec("sklearn")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            rows = np.loadtxt(path, delimiter=",")
            return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1]
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images, digits.target


def _fingerprint(splits: Sequence[Samples], spec: TensorSpec) -> str:
    """Return a key of everything that the model is fed with, and of the labels."""
    arrays = [array for part in splits for array in (part.inputs[spec.name], part.targets)]
    return content_key([str(spec), [sha256(np.asarray(each).tobytes()) for each in arrays]])
