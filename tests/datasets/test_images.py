"""Folders of images: what is drawn, how often it is decoded, and what is refused."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_models import run
from PIL import Image
from real_data import EFFICIENTNET_LITE0, IMAGENET_SAMPLE, requires_real_data
from suite_datasets import DatasetSuite

from seqto.datasets import images as images_module
from seqto.datasets.image_pool import find_images
from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.errors import CacheError, DatasetError
from seqto.graph.load import input_specs, load_model
from seqto.types import TensorSpec
from seqto.workspace import Workspace

IMAGE = TensorSpec("x", (None, 3, 4, 4), "float32")
PLAIN = {"resize": 4, "crop": 4, "scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}


def save_image(path: Path, value: int) -> None:
    """Save an image whose pixels tell which one it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (5, 6), (value, value, value)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a flat folder of 12 images, with pixels 0 to 11, among other files."""
    folder = tmp_path / "photos"
    for value in range(12):
        save_image(folder / f"{value:02}.png", value)
    (folder / "notes.txt").write_text("no image")
    (folder / "._00.png").write_text("macOS leaves these")
    return folder


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Callable[..., ImageFolder]:
    """Return a function that makes a dataset of this folder, with other settings as given."""

    def make(**settings) -> ImageFolder:
        plain = {
            "path": str(folder),
            "preprocess": ImagePreprocess(**PLAIN),
            "calibration_size": 3,
            "evaluation_size": 5,
            "workspace": Workspace(tmp_path / "cache"),
        }
        return ImageFolder(**{**plain, **settings})

    return make


def _label_by_csv(folder: Path) -> None:
    lines = [f"{value:02}.png,{value}" for value in range(12)]
    (folder / "labels.csv").write_text("\n".join(["file,label", *lines]))


def _label_by_folder(folder: Path) -> None:
    for value in range(12):
        (folder / f"class{value:02}").mkdir()
        (folder / f"{value:02}.png").rename(folder / f"class{value:02}" / "image.png")


class TestFlatFolder(DatasetSuite):
    """The conformance suite, without labels."""

    @pytest.fixture
    def dataset(self, make) -> ImageFolder:
        """Return a dataset of a flat folder."""
        return make()

    @pytest.fixture
    def other(self, tmp_path: Path, make) -> ImageFolder:
        """Return one of files of the same names with other content."""
        for value in range(12):
            save_image(tmp_path / "other" / f"{value:02}.png", 100 + value)
        return make(path=str(tmp_path / "other"))

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return an image input."""
        return IMAGE


class TestFolderPerClass(TestFlatFolder):
    """The conformance suite, with labels from the folders' names."""

    @pytest.fixture
    def dataset(self, folder: Path, make) -> ImageFolder:
        """Return a dataset of a folder per class."""
        _label_by_folder(folder)
        return make()

    @pytest.fixture
    def other(self, make) -> ImageFolder:
        """Return one of other images."""
        return make(seed=1)


class TestFolderWithTable(TestFlatFolder):
    """The conformance suite, with labels from a CSV."""

    @pytest.fixture
    def dataset(self, folder: Path, make) -> ImageFolder:
        """Return a dataset of a folder with a CSV."""
        _label_by_csv(folder)
        return make()

    @pytest.fixture
    def other(self, tmp_path: Path, make) -> ImageFolder:
        """Return one of the same images in which one label differs."""
        copy = tmp_path / "copy"
        for value in range(12):
            save_image(copy / "images" / f"{value:02}.png", value)
        _label_by_csv(copy)
        text = (copy / "labels.csv").read_text()
        used = make().load([IMAGE]).evaluation.ids[0]
        (copy / "labels.csv").write_text(text.replace(f"{used},", f"{used},9"))
        return make(path=str(copy))


@pytest.mark.parametrize("label", [_label_by_csv, _label_by_folder])
def test_labels_belong_to_their_images(folder: Path, make, label) -> None:
    label(folder)
    splits = make().load([IMAGE])
    for part in (splits.calibration, splits.evaluation):
        np.testing.assert_array_equal(part.inputs["x"][:, 0, 0, 0], part.targets)


def test_flat_folder_has_no_labels(make) -> None:
    assert make().load([IMAGE]).evaluation.targets is None


def test_single_folder_has_no_labels(folder: Path, make) -> None:
    splits = make(path=str(folder.parent)).load([IMAGE])
    assert splits.evaluation.targets is None
    assert splits.evaluation.ids[0].startswith("photos/")


def test_empty_class_folders_count(folder: Path, make) -> None:
    _label_by_folder(folder)
    (folder / "class00" / "image.png").unlink()
    splits = make(evaluation_size=None).load([IMAGE])
    found = {*splits.calibration.targets, *splits.evaluation.targets}
    assert found == set(range(1, 12))


def test_ids_name_the_images(make) -> None:
    evaluation = make().load([IMAGE]).evaluation
    values = evaluation.inputs["x"][:, 0, 0, 0]
    assert evaluation.ids == tuple(f"{int(value):02}.png" for value in values)


def test_seed_draws_and_calibration_comes_first(make) -> None:
    order = np.random.RandomState(3).permutation(12)
    splits = make(seed=3).load([IMAGE])
    np.testing.assert_array_equal(splits.calibration.inputs["x"][:, 0, 0, 0], order[:3])
    np.testing.assert_array_equal(splits.evaluation.inputs["x"][:, 0, 0, 0], order[3:8])


def test_without_an_evaluation_size_all_the_rest_is_taken(make) -> None:
    assert len(make(evaluation_size=None).load([IMAGE]).evaluation) == 9


def test_extensions_of_any_case(folder: Path, make) -> None:
    (folder / "00.png").rename(folder / "00.PNG")
    save_image(folder / "12.JPeG", 12)
    assert len(make(evaluation_size=None).load([IMAGE]).evaluation) == 10


def test_copies_of_an_image_are_left_out(
    folder: Path, make, caplog: pytest.LogCaptureFixture
) -> None:
    for value in range(11):
        save_image(folder / f"copy{value:02}.png", value)
    with caplog.at_level(logging.WARNING):
        splits = make(evaluation_size=None).load([IMAGE])
    assert len(splits.calibration) + len(splits.evaluation) == 12
    assert "11 images are copies of others" in caplog.text


def test_copies_do_not_count_as_enough(folder: Path, make) -> None:
    for value in range(12):
        save_image(folder / f"{value:02}.png", value % 6)
    with pytest.raises(DatasetError, match="has 6 different images"):
        make().load([IMAGE])


def test_one_image_is_told_in_the_singular(folder: Path, make) -> None:
    for value in range(12):
        save_image(folder / f"{value:02}.png", 0)
    with pytest.raises(DatasetError, match="has 1 different image, but"):
        make().load([IMAGE])


@pytest.mark.parametrize(("evaluation", "needed"), [(10, "10"), (None, "at least 1")])
def test_too_few_images_say_how_many_and_what_to_lower(make, evaluation, needed: str) -> None:
    found = (
        f"has 12 images, but 12 to calibrate and {needed} to evaluate on are needed.*"
        "dataset.calibration_size and dataset.evaluation_size"
    )
    with pytest.raises(DatasetError, match=found):
        make(calibration_size=12, evaluation_size=evaluation).load([IMAGE])


def test_images_are_decoded_once(make, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make().load([IMAGE])
    monkeypatch.setattr(images_module, "_decoded", None)
    again = make().load([IMAGE])
    np.testing.assert_array_equal(again.evaluation.inputs["x"], first.evaluation.inputs["x"])
    # The same draw, cut elsewhere.
    assert len(make(calibration_size=4, evaluation_size=4).load([IMAGE]).calibration) == 4


def test_changed_image_is_noticed(folder: Path, make) -> None:
    first = make().load([IMAGE])
    save_image(folder / first.evaluation.ids[0], 200)
    again = make().load([IMAGE])
    assert again.evaluation.ids == first.evaluation.ids
    assert again.evaluation.inputs["x"][0, 0, 0, 0] == 200
    assert again.fingerprint != first.fingerprint


@pytest.mark.parametrize("setting", [{"mean": [1, 0, 0]}, {"color": "BGR"}, {"resize": 5}])
def test_other_preprocessing_has_another_fingerprint(make, setting: dict) -> None:
    other = make(preprocess=ImagePreprocess(**{**PLAIN, **setting}))
    assert other.load([IMAGE]).fingerprint != make().load([IMAGE]).fingerprint


def test_other_cut_has_another_fingerprint(make) -> None:
    other = make(calibration_size=4, evaluation_size=4)
    assert other.load([IMAGE]).fingerprint != make().load([IMAGE]).fingerprint


def test_arrays_are_memory_mapped_and_read_only(make, tmp_path: Path) -> None:
    array = make().load([IMAGE]).evaluation.inputs["x"]
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    (path,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert path.suffix == ".npy"


def test_nothing_is_left_of_a_load_that_failed(folder: Path, make, tmp_path: Path) -> None:
    name = make().load([IMAGE]).evaluation.ids[-1]
    (folder / name).write_bytes(b"no image")
    before = sorted((tmp_path / "cache").rglob("*.npy"))
    with pytest.raises(DatasetError, match=f"{name} cannot be read as an image"):
        make().load([IMAGE])
    assert sorted((tmp_path / "cache").rglob("*.npy")) == before


def test_cut_image_is_refused(folder: Path, make) -> None:
    noise = np.random.RandomState(0).randint(0, 255, (64, 64, 3)).astype(np.uint8)
    path = folder / make().load([IMAGE]).evaluation.ids[0]
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DatasetError, match="cannot be read as an image.*replace or remove it"):
        make().load([IMAGE])


def test_cache_that_cannot_be_written_is_named(make, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(CacheError, match="cannot be kept in .*cache.*SEQTO_CACHE"):
        make().load([IMAGE])


def test_default_cache_is_the_users(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "mine"))
    make(workspace=None).load([IMAGE])
    assert list((tmp_path / "mine").rglob("*.npy"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("file,label\n00.png,0\nnone.png,1\n", r"labels\.csv, line 3: 'none\.png' is neither in"),
        ("file,label\n00.png,cat\n", r"labels\.csv, line 2: the label .* not 'cat'"),
        ("file,label\n00.png,1\n00.png,2\n", r"gives '00\.png' the labels 1 and 2: keep one"),
        ("file,label\n../00.png,1\n", r"line 2: '\.\./00\.png' leaves"),
        ("file,label\n/etc/hostname,1\n", r"line 2: '/etc/hostname' leaves"),
        (f"file,label\n00.png,{10**23}\n", r"line 2: no model has a class 1000"),
        ("file,label\n00.png\n", r"labels\.csv, line 2: the label .* not ''"),
        ("file,label\n00.png,-1\n", r"labels\.csv, line 2: the label .* not '-1'"),
        ("00.png,0\n", r"labels\.csv, line 1: the header must be file,label, not '00\.png,0'"),
        ("", r"labels\.csv, line 1: the header must be file,label"),
        ("file,label\n", "has no images"),
    ],
)
def test_faults_of_the_table_are_named(folder: Path, make, text: str, found: str) -> None:
    (folder / "labels.csv").write_text(text)
    with pytest.raises(DatasetError, match=found):
        make().load([IMAGE])


def test_table_that_is_no_text_is_refused(folder: Path, make) -> None:
    (folder / "labels.csv").write_bytes(b"file,label\n\xff\xfe,0\n")
    with pytest.raises(DatasetError, match=r"labels\.csv cannot be read as a CSV in UTF-8"):
        make().load([IMAGE])


def test_table_of_a_spreadsheet_is_read(folder: Path, make) -> None:
    _label_by_csv(folder)
    text = (folder / "labels.csv").read_text().replace("\n", "\r\n")
    (folder / "labels.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert make().load([IMAGE]).evaluation.targets is not None


def test_one_of_several_tables_is_chosen(folder: Path, make) -> None:
    _label_by_csv(folder)
    (folder / "other.csv").write_text("nothing,here\n")
    with pytest.raises(DatasetError, match=r"set dataset.labels to one of labels\.csv, other\.csv"):
        make().load([IMAGE])
    assert make(labels="labels.csv").load([IMAGE]).evaluation.targets is not None
    with pytest.raises(DatasetError, match=r"dataset.labels=none\.csv is no file"):
        make(labels="none.csv").load([IMAGE])


def test_flat_and_nested_images_are_not_mixed(folder: Path, make) -> None:
    save_image(folder / "more" / "13.png", 13)
    with pytest.raises(DatasetError, match="both in itself and in folders"):
        make().load([IMAGE])


def test_folder_without_images_and_no_folder_are_refused(tmp_path: Path, make) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="has no images"):
        make(path=str(tmp_path / "empty")).load([IMAGE])
    with pytest.raises(DatasetError, match="is no folder: set dataset.path"):
        make(path=str(tmp_path / "none")).load([IMAGE])


@requires_real_data
def test_real_photos_are_preprocessed_as_efficientnet_was_trained(tmp_path: Path) -> None:
    model = load_model(EFFICIENTNET_LITE0, "efficientnet-lite0")
    preprocess = ImagePreprocess(
        interpolation="bicubic", scale=1.0, mean=[127.0] * 3, std=[128.0] * 3
    )
    dataset = ImageFolder(
        path=str(IMAGENET_SAMPLE),
        preprocess=preprocess,
        calibration_size=1,
        evaluation_size=100,
        workspace=Workspace(tmp_path),
    )
    evaluation = dataset.load(input_specs(model)).evaluation
    predicted = [
        run(model, dict(batch), optimized=True)[0].argmax(1) for batch in evaluation.batches(50)
    ]
    assert np.mean(np.concatenate(predicted) == evaluation.targets) == pytest.approx(0.87, abs=0.04)


def test_labels_can_be_left_out(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / f"{label}.png").touch()
    assert [each.label for each in find_images(tmp_path, None)] == [0, 1]
    assert [each.label for each in find_images(tmp_path, False)] == [None, None]
