"""The embedded digits."""

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError
from suite_datasets import DatasetSuite

from seqto.datasets.digits import DigitsDataset, read_digits
from seqto.datasets.digits_split import split
from seqto.errors import DatasetError
from seqto.types import TensorSpec

IMAGE = TensorSpec("image", (None, 1, 8, 8), "float32")


class TestDigits(DatasetSuite):
    """The conformance suite."""

    @pytest.fixture
    def dataset(self) -> DigitsDataset:
        """Return the default."""
        return DigitsDataset()

    @pytest.fixture
    def other(self) -> DigitsDataset:
        """Return one that draws in another order."""
        return DigitsDataset(seed=1)

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input of the embedded model."""
        return IMAGE


def test_pixels_go_from_0_to_1_and_labels_from_0_to_9() -> None:
    evaluation = DigitsDataset().load([IMAGE]).evaluation
    pixels = evaluation.inputs["image"]
    assert (pixels.min(), pixels.max()) == (0, 1)
    assert set(evaluation.targets) == set(range(10))


def test_ids_tell_which_digit_of_scikit_learn_it_is() -> None:
    from sklearn.datasets import load_digits

    evaluation = DigitsDataset(seed=5).load([IMAGE]).evaluation
    digits = load_digits()
    for position in (0, 400, 799):
        index = int(evaluation.ids[position].removeprefix("digit-"))
        assert evaluation.targets[position] == digits.target[index]
        np.testing.assert_allclose(
            evaluation.inputs["image"][position, 0] * 16, digits.images[index]
        )


def test_they_are_read_as_scikit_learn_reads_them_without_its_import() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = read_digits()
    np.testing.assert_array_equal(pixels, digits.images)
    np.testing.assert_array_equal(labels, digits.target)
    code = (
        "import sys; from seqto.datasets.digits import read_digits; read_digits(); "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_was_trained_on() -> None:
    splits = DigitsDataset().load([IMAGE])
    ids = {*splits.calibration.ids, *splits.evaluation.ids}
    assert len(ids) == 900
    assert not ids & {f"digit-{index:04}" for index in split().training}


def test_sizes_take_a_prefix() -> None:
    whole = DigitsDataset().load([IMAGE])
    part = DigitsDataset(calibration_size=10, evaluation_size=20).load([IMAGE])
    assert part.calibration.ids == whole.calibration.ids[:10]
    assert part.evaluation.ids == whole.evaluation.ids[:20]
    assert part.fingerprint != whole.fingerprint


@pytest.mark.parametrize(("option", "most"), [("calibration_size", 100), ("evaluation_size", 800)])
def test_too_large_sizes_say_the_maximum(option: str, most: int) -> None:
    with pytest.raises(DatasetError, match=f"dataset.{option}=801 .* at most {most}"):
        DigitsDataset(**{option: 801}).load([IMAGE])


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValidationError, match="calibration_size"):
        DigitsDataset(calibration_size=0)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("x", (None, 3, 224, 224), "float32"),
        TensorSpec("x", (None, 1, 8, 8), "float64"),
        TensorSpec("x", (None, 64), "float32"),
    ],
)
def test_model_of_other_inputs_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(DatasetError) as caught:
        DigitsDataset().load([spec])
    assert str(spec) in str(caught.value)
    assert "dataset digits gives float32[?, 1, 8, 8]" in str(caught.value)
