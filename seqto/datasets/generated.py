"""Random samples for models without data."""

import logging
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.arrays import row_digest
from seqto.datasets.draw import Drawn, split_arrays
from seqto.errors import DatasetError
from seqto.types import Splits, TensorSpec

_log = logging.getLogger(__name__)


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class RandomDataset:
    """Noise in the shapes of the model's inputs: normal floats, integers below `integers`.

    Dimensions that the graph leaves free get the length `free`.
    """

    calibration_size: PositiveInt = 32
    evaluation_size: PositiveInt = 100
    chunk_size: PositiveInt = 32
    integers: Annotated[int, Field(ge=2)] = 100
    free: PositiveInt = 16
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    name: str = field(default="random", init=False)

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits, with each input drawn independently."""
        _log.warning(
            "dataset=random feeds noise: sizes and latencies are real, but losses mean little. "
            "Give real samples with dataset=images, npz or hf."
        )
        random = np.random.RandomState(self.seed)
        total = self.calibration_size + self.evaluation_size
        arrays = {spec.name: self._noise(spec, total, random) for spec in inputs}
        drawn = {row_digest(arrays, index): index for index in range(total)}
        if len(drawn) < total:
            raise DatasetError(
                f"the model's inputs are so small that only {len(drawn)} of {total} random samples "
                "differ: raise dataset.integers, or lower dataset.calibration_size and "
                "dataset.evaluation_size."
            )
        return split_arrays(arrays, None, Drawn(drawn, self.calibration_size))

    def _noise(self, spec: TensorSpec, count: int, random: np.random.RandomState) -> np.ndarray:
        shape = (count, *(self.free if dim is None else dim for dim in spec.shape[1:]))
        kind = np.dtype(spec.dtype).kind
        if kind == "f":
            return random.standard_normal(shape).astype(spec.dtype)
        if kind == "b":
            return random.randint(0, 2, shape).astype(spec.dtype)
        if kind in "iu":
            highest = min(self.integers, np.iinfo(spec.dtype).max)
            return random.randint(0, highest, shape).astype(spec.dtype)
        raise DatasetError(
            f"model input {spec} is neither float nor integer: dataset=random cannot feed it, "
            "write samples into a file for dataset=npz."
        )
