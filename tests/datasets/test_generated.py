"""Random samples in the shapes of the graph."""

import logging

import numpy as np
import pytest
from suite_datasets import DatasetSuite

from seqto.datasets.generated import RandomDataset
from seqto.errors import DatasetError
from seqto.protocols import Dataset
from seqto.types import TensorSpec


class TestRandomDataset(DatasetSuite):
    """The conformance suite, but for what it feeds: anything."""

    @pytest.fixture
    def dataset(self) -> RandomDataset:
        """Return a few samples."""
        return RandomDataset(calibration_size=3, evaluation_size=5)

    @pytest.fixture
    def other(self) -> RandomDataset:
        """Return others."""
        return RandomDataset(calibration_size=3, evaluation_size=5, seed=1)

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input of a small image model."""
        return TensorSpec("image", (None, 3, 4, 4), "float32")

    def test_a_second_input_is_refused(self, dataset: Dataset, spec: TensorSpec) -> None:
        """It is fed as well."""
        more = TensorSpec("more", (None, 2), "float32")
        assert list(dataset.load([spec, more]).evaluation.inputs) == ["image", "more"]

    def test_an_input_of_another_rank_is_refused(self, dataset: Dataset) -> None:
        """It is fed as well."""
        samples = dataset.load([TensorSpec("x", (None, 16), "float32")]).evaluation
        assert samples.inputs["x"].shape == (5, 16)


def test_every_kind_of_input_gets_its_own(caplog: pytest.LogCaptureFixture) -> None:
    inputs = [
        TensorSpec("ids", (None, None), "int64"),
        TensorSpec("bytes", (1, 300), "uint8"),
        TensorSpec("flags", (None, 9), "bool"),
        TensorSpec("half", (None, 2, None), "float16"),
    ]
    dataset = RandomDataset(calibration_size=3, evaluation_size=5, integers=7, free=4)
    with caplog.at_level(logging.WARNING):
        samples = dataset.load(inputs).evaluation
    assert "losses mean little" in caplog.text
    shapes = {name: (array.shape, array.dtype.name) for name, array in samples.inputs.items()}
    assert shapes == {
        "ids": ((5, 4), "int64"),
        "bytes": ((5, 300), "uint8"),
        "flags": ((5, 9), "bool"),
        "half": ((5, 2, 4), "float16"),
    }
    assert set(np.unique(samples.inputs["bytes"])) == set(range(7))
    assert samples.inputs["ids"].max() < 7


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DatasetError, match="neither float nor integer"):
        RandomDataset().load([TensorSpec("text", (None, 1), "object")])
    with pytest.raises(DatasetError, match="only 2 of 132 random samples differ"):
        RandomDataset().load([TensorSpec("flag", (None, 1), "bool")])
