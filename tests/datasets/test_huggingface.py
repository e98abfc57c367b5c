"""Samples from the `datasets` library, from local datasets."""

import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from suite_datasets import DatasetSuite

from seqto.datasets.huggingface import HuggingFaceDataset
from seqto.datasets.preprocess import ImagePreprocess
from seqto.errors import DatasetError
from seqto.types import TensorSpec

PREPROCESS = ImagePreprocess(resize=8, crop=8, mean=[0, 0, 0], std=[1, 1, 1])
IMAGE = TensorSpec("image", (None, 3, 8, 8), "float32")


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the library prepares out of the user's cache."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")


def photos(count: int = 10, seed: int = 0) -> datasets.Dataset:
    """Return so many labelled images; the first pixel tells the label."""
    pixels = np.random.RandomState(seed).randint(0, 256, (count, 8, 8, 3)).astype(np.uint8)
    pixels[:, 0, 0, 0] = np.arange(count)
    content = {"image": [Image.fromarray(each) for each in pixels], "label": list(range(count))}
    labels = datasets.ClassLabel(num_classes=count)
    features = datasets.Features({"image": datasets.Image(), "label": labels})
    return datasets.Dataset.from_dict(content, features=features)


def saved(table: datasets.Dataset, folder: Path, **options: object) -> HuggingFaceDataset:
    """Return the dataset that `save_to_disk` leaves."""
    table.save_to_disk(folder)
    return source(folder, **options)


def source(folder: Path, **options: object) -> HuggingFaceDataset:
    """Return the dataset of a folder."""
    sizes = {"calibration_size": 3, "evaluation_size": 5}
    return HuggingFaceDataset(path=str(folder), preprocess=PREPROCESS, **(sizes | options))


class TestHuggingFaceDataset(DatasetSuite):
    """The conformance suite."""

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> HuggingFaceDataset:
        """Return a saved dataset."""
        return saved(photos(), tmp_path / "one")

    @pytest.fixture
    def other(self, tmp_path: Path) -> HuggingFaceDataset:
        """Return one with other images."""
        return saved(photos(seed=1), tmp_path / "two")

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input of a small image model."""
        return IMAGE


def test_images_are_preprocessed_and_keep_their_labels(tmp_path: Path) -> None:
    samples = saved(photos(), tmp_path / "a").load([IMAGE]).evaluation
    labels = np.round(samples.inputs["image"][:, 0, 0, 0] * 255)
    np.testing.assert_array_equal(labels, samples.targets)


def test_a_folder_of_files_is_read_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "parquet"
    folder.mkdir()
    photos().to_parquet(folder / "validation.parquet")
    samples = source(folder).load([IMAGE]).evaluation
    assert len(samples) == 5 and samples.targets is not None


def test_a_split_of_several(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": photos(), "test": photos(seed=1)})
    both.save_to_disk(tmp_path / "both")
    assert len(source(tmp_path / "both", split="test").load([IMAGE]).evaluation) == 5
    with pytest.raises(DatasetError, match="split 'validation'.*dataset.split"):
        source(tmp_path / "both").load([IMAGE])


def test_columns_feed_inputs_by_name(tmp_path: Path) -> None:
    tokens = np.arange(60).reshape(10, 6)
    table = datasets.Dataset.from_dict({"mask": (tokens % 2).tolist(), "ids": tokens.tolist()})
    specs = [TensorSpec("ids", (None, 6), "int64"), TensorSpec("mask", (None, 6), "int64")]
    samples = saved(table, tmp_path / "a", image=None, label=None).load(specs).evaluation
    np.testing.assert_array_equal(samples.inputs["ids"] % 2, samples.inputs["mask"])
    more = [*specs, TensorSpec("types", (None, 6), "int64")]
    with pytest.raises(DatasetError, match="no column 'types'.*It has: mask, ids"):
        source(tmp_path / "a", image=None, label=None).load(more)


def test_rows_of_different_lengths_are_refused(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"ids": [list(range(1, n + 2)) for n in range(10)]})
    dataset = saved(table, tmp_path / "a", image=None, label=None)
    with pytest.raises(DatasetError, match="rows of different shapes"):
        dataset.load([TensorSpec("ids", (None, None), "int64")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": "photo"}, "no column 'photo'.*dataset.image.*It has: image, label"),
        ({"label": "class"}, "no column 'class'.*dataset.label"),
        ({"label": "image"}, "not class indices"),
        ({"evaluation_size": 50}, "has 10 samples, but 3 to calibrate and 50"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        saved(photos(), tmp_path / "a", **options).load([IMAGE])


def test_a_dataset_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError, match="cannot be loaded.*dataset.path") as raised:
        source(tmp_path / "none").load([IMAGE])
    assert "\n" not in str(raised.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetError, match=r"pip install 'seqto\[hf\]'"):
        source(Path("any")).load([IMAGE])
