"""Samples from .npz files."""

import io
import logging
import zipfile
from pathlib import Path

import numpy as np
import pytest
from suite_datasets import DatasetSuite

from seqto.datasets.arrays import ArrayFile
from seqto.errors import DatasetError
from seqto.types import TensorSpec

IMAGE = TensorSpec("image", (None, 3, 4, 4), "float32")
TOKENS = TensorSpec("tokens", (None, 6), "int64")
MASK = TensorSpec("mask", (None, 6), "int64")


def written(path: Path, **arrays: np.ndarray) -> ArrayFile:
    """Return the dataset of a file with these arrays."""
    np.savez(path, **arrays)
    return ArrayFile(path=str(path), calibration_size=3, evaluation_size=5)


def noise(count: int = 10, seed: int = 0) -> np.ndarray:
    """Return so many small images."""
    return np.random.RandomState(seed).randn(count, 3, 4, 4).astype(np.float32)


class TestArrayFile(DatasetSuite):
    """The conformance suite."""

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> ArrayFile:
        """Return the dataset of a file with one array and labels."""
        return written(tmp_path / "one.npz", pixels=noise(), labels=np.arange(10))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ArrayFile:
        """Return one with other content."""
        return written(tmp_path / "other.npz", pixels=noise(seed=1), labels=np.arange(10))

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input of a small image model."""
        return IMAGE


def test_several_inputs_are_fed_by_name(tmp_path: Path) -> None:
    tokens = np.arange(60, dtype=np.int32).reshape(10, 6)
    dataset = written(tmp_path / "a.npz", mask=tokens % 2, tokens=tokens, unused=np.zeros(3))
    splits = dataset.load([TOKENS, MASK])
    samples = splits.evaluation
    assert set(samples.inputs) == {"tokens", "mask"} and samples.targets is None
    assert samples.inputs["tokens"].dtype == np.int64
    np.testing.assert_array_equal(samples.inputs["tokens"] % 2, samples.inputs["mask"])


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(120).reshape(10, 3, 4),
        np.linspace(0, 1, 10),
        np.array([f"text {at}" for at in range(10)]),
    ],
    ids=["masks", "floats", "texts"],
)
def test_labels_may_be_of_any_shape_and_type(tmp_path: Path, labels: np.ndarray) -> None:
    pixels = np.arange(10, dtype=np.float32)[:, None, None, None] + np.zeros_like(noise())
    splits = written(tmp_path / "a.npz", x=pixels, labels=labels).load([IMAGE])
    for part in (splits.calibration, splits.evaluation):
        assert part.targets is not None
        wanted = labels[part.inputs["image"][:, 0, 0, 0].astype(int)]
        np.testing.assert_array_equal(part.targets, wanted)
    other = written(tmp_path / "b.npz", x=pixels, labels=labels[::-1]).load([IMAGE])
    assert other.fingerprint != splits.fingerprint


def test_labels_stay_with_their_samples(tmp_path: Path) -> None:
    pixels = noise()
    pixels[:, 0, 0, 0] = np.arange(10)
    for part in (lambda splits: splits.calibration, lambda splits: splits.evaluation):
        samples = part(
            written(tmp_path / "a.npz", x=pixels, labels=np.arange(10, dtype=np.int16)).load(
                [IMAGE]
            )
        )
        np.testing.assert_array_equal(samples.inputs["image"][:, 0, 0, 0], samples.targets)


def test_copies_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pixels = np.concatenate([noise(8), noise(8)])
    with caplog.at_level(logging.WARNING):
        splits = written(tmp_path / "a.npz", x=pixels).load([IMAGE])
    assert len(splits.calibration) + len(splits.evaluation) == 8
    assert "are copies of others" in caplog.text


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": noise(4)}, "has 4 samples, but 3 to calibrate and 5"),
        ({"x": noise(), "labels": np.arange(9)}, "10 of image, 9 of the labels"),
        ({"x": noise(), "labels": np.ones(())}, "labels are one value"),
        ({"x": noise().astype(np.int64)}, "does not fit, dataset a gives int64"),
        ({"y": noise(), "z": noise()}, "model wants 'image'.*gives 'y', 'z'"),
        ({"x": np.array([{}], dtype=object)}, "cannot be read as a .npz file"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    with pytest.raises(DatasetError, match=words):
        written(tmp_path / "a.npz", **arrays).load([IMAGE])


def test_integers_that_do_not_fit_are_not_cut(tmp_path: Path) -> None:
    tokens = np.full((10, 6), 2**40) + np.arange(60).reshape(10, 6)
    with pytest.raises(DatasetError, match="does not fit"):
        written(tmp_path / "a.npz", x=tokens).load([TensorSpec("x", (None, 6), "int32")])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none.npz does not exist: set dataset.path"):
        ArrayFile(path=str(tmp_path / "none.npz")).load([IMAGE])
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(DatasetError, match=r"cannot be read as a .npz file"):
        ArrayFile(path=str(tmp_path / "text.npz")).load([IMAGE])


def test_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.npz").touch()
    with pytest.raises(DatasetError, match=r"empty\.npz cannot be read as a \.npz file"):
        ArrayFile(path=str(tmp_path / "empty.npz")).load([IMAGE])


def test_file_that_claims_a_terabyte_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    claimed = {"descr": "<f8", "fortran_order": False, "shape": (2**37, 2**10)}
    np.lib.format.write_array_header_1_0(header, claimed)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        file.writestr("x.npy", header.getvalue() + bytes(64))
    with pytest.raises(DatasetError, match=r"huge\.npz (does not fit|cannot be read)"):
        ArrayFile(path=str(tmp_path / "huge.npz")).load([IMAGE])
