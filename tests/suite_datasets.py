"""What every dataset must do; the test of each one subclasses this."""

import numpy as np
import pytest

from seqto.datasets.fit import fits
from seqto.errors import DatasetError
from seqto.protocols import Dataset
from seqto.types import Samples, Splits, TensorSpec


class DatasetSuite:
    """Subclasses give the fixtures `dataset`, `other` (other content) and `spec` (its input)."""

    @pytest.fixture
    def dataset(self) -> Dataset:
        """Return the dataset to test, small enough to be loaded in each test."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Dataset:
        """Return a dataset of the same class that gives other samples."""
        raise NotImplementedError

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return a model input that the dataset fits."""
        raise NotImplementedError

    @pytest.fixture
    def splits(self, dataset: Dataset, spec: TensorSpec) -> Splits:
        """Return what the dataset gives."""
        return dataset.load([spec])

    def test_splits_are_the_same_each_time(
        self, dataset: Dataset, splits: Splits, spec: TensorSpec
    ) -> None:
        again = dataset.load([spec])
        assert again.fingerprint == splits.fingerprint
        for one, two in zip(_parts(splits), _parts(again), strict=True):
            assert one.ids == two.ids
            np.testing.assert_array_equal(one.inputs[spec.name], two.inputs[spec.name])

    def test_splits_have_no_sample_in_common(self, splits: Splits, spec: TensorSpec) -> None:
        one, two = (
            {row.tobytes() for row in part.inputs[spec.name]} | set(part.ids)
            for part in _parts(splits)
        )
        assert one and two and not one & two

    def test_ids_are_unique(self, splits: Splits) -> None:
        ids = [each for part in _parts(splits) for each in part.ids]
        assert len(set(ids)) == len(ids)

    def test_inputs_fit_the_model(self, splits: Splits, spec: TensorSpec) -> None:
        for part in _parts(splits):
            assert list(part.inputs) == [spec.name]
            assert fits(part.inputs[spec.name], spec)
            assert len(part.inputs[spec.name]) == len(part)
            assert np.isfinite(part.inputs[spec.name]).all()

    def test_targets_are_one_a_sample(self, splits: Splits) -> None:
        for part in _parts(splits):
            if part.targets is not None:
                assert len(part.targets) == len(part)
            if isinstance(part.targets, np.ndarray) and part.targets.dtype.kind in "iu":
                assert part.targets.dtype == np.int64

    def test_a_mask_has_a_row_a_sample(self, splits: Splits) -> None:
        for part in _parts(splits):
            if part.mask is not None:
                assert part.mask.dtype == bool
                assert len(part.mask) == len(part)

    def test_inputs_take_the_name_of_the_models(self, dataset: Dataset, spec: TensorSpec) -> None:
        renamed = TensorSpec("another/name:0", spec.shape, spec.dtype)
        assert list(dataset.load([renamed]).evaluation.inputs) == ["another/name:0"]

    def test_fingerprint_changes_with_the_content(
        self, splits: Splits, other: Dataset, spec: TensorSpec
    ) -> None:
        assert other.load([spec]).fingerprint != splits.fingerprint

    def test_says_how_it_is_called_and_read(self, dataset: Dataset) -> None:
        assert dataset.name
        assert dataset.chunk_size > 0

    def test_a_second_input_is_refused(self, dataset: Dataset, spec: TensorSpec) -> None:
        with pytest.raises(DatasetError, match=f"'more'.*dataset {dataset.name} gives"):
            dataset.load([spec, TensorSpec("more", (None, 2), "float32")])

    def test_an_input_of_another_rank_is_refused(self, dataset: Dataset) -> None:
        with pytest.raises(DatasetError, match=r"model input 'x' float32\[\?, 16\]"):
            dataset.load([TensorSpec("x", (None, 16), "float32")])


def _parts(splits: Splits) -> tuple[Samples, Samples]:
    return splits.calibration, splits.evaluation
