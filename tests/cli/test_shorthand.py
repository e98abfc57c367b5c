"""`seqto my.onnx photos/` is a study of that file and folder."""

from pathlib import Path

import numpy as np
import pytest
from commands import Command, Result

from seqto.cli.shorthand import expanded
from seqto.config.paths import PACKAGE

DIGITS = PACKAGE / "models" / "data" / "digits.onnx"
MODEL = ["model=local", "model.path=my.onnx"]
OWN = ["model=local", "model.path=own/my.onnx"]
TOKENIZER = "dataset.tokenizer=own/tokenizer.json"
IMAGES = ["dataset=images", "dataset.path=photos/"]
IMAGENET = "preprocess=imagenet"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a model, images and arrays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.onnx").write_bytes(DIGITS.read_bytes())
    (tmp_path / "photos").mkdir()
    (tmp_path / "lines.txt").touch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "my.onnx").write_bytes(DIGITS.read_bytes())
    (tmp_path / "own" / "tokenizer.json").touch()
    images = np.random.default_rng(0).random((40, 1, 8, 8), np.float32)
    np.savez(tmp_path / "samples.npz", image=images)
    return tmp_path


CASES = {
    "folder": ("my.onnx photos/", [*MODEL, *IMAGES, IMAGENET, "-m"]),
    "file": ("my.onnx samples.npz", [*MODEL, "dataset=npz", "dataset.path=samples.npz", "-m"]),
    "texts": ("my.onnx lines.txt", [*MODEL, "dataset=text", "dataset.path=lines.txt", "-m"]),
    "tokenizer of one's own": (
        "own/my.onnx lines.txt dataset.tokenizer=mine.json",
        [*OWN, "dataset=text", "dataset.path=lines.txt", "dataset.tokenizer=mine.json", "-m"],
    ),
    "tokenizer beside the model": (
        "own/my.onnx lines.txt",
        [*OWN, "dataset=text", "dataset.path=lines.txt", TOKENIZER, "-m"],
    ),
    "words": (
        "my.onnx photos/ preprocess=yolo device=cpu",
        [*MODEL, *IMAGES, "preprocess=yolo", "device=cpu", "-m"],
    ),
    "dataset by name": ("my.onnx dataset=random", [*MODEL, "dataset=random", "-m"]),
    "option": ("my.onnx photos/ --cfg job", [*MODEL, *IMAGES, IMAGENET, "--cfg", "job"]),
    "study already": ("my.onnx photos/ -m", [*MODEL, *IMAGES, IMAGENET, "-m"]),
    "candidate": (
        "my.onnx photos/ candidate.top=2",
        [*MODEL, *IMAGES, IMAGENET, "candidate.top=2"],
    ),
    "other order": ("photos/ my.onnx", [*MODEL, *IMAGES, IMAGENET, "-m"]),
    "no model": ("model=digits -m", ["model=digits", "-m"]),
    "words that are no files": ("study my", ["study", "my"]),
}


@pytest.mark.parametrize("case", CASES)
def test_files_become_words(here: Path, case: str) -> None:
    typed, wanted = CASES[case]
    assert expanded(typed.split()) == wanted


def test_a_path_with_special_characters_is_quoted(here: Path) -> None:
    (here / "a,b c.onnx").touch()
    assert expanded(["a,b c.onnx", "photos/"])[1] == "model.path='a,b c.onnx'"


def complaint(result: Result) -> str:
    assert result.code == 1
    (line,) = result.err.strip().splitlines()
    return line.removeprefix("seqto: error: ")


WRONG = {
    "no such model": ("your.onnx photos/", "your.onnx does not exist"),
    "no such folder": ("my.onnx pictures", "pictures does not exist: give a folder of images"),
    "no such kind of file": (
        "my.onnx own/tokenizer.json",
        "own/tokenizer.json is none of these: a folder of images, a .npz file, a .txt file",
    ),
    "no samples": ("my.onnx device=cpu", "there are no samples for my.onnx: add a folder"),
    "a study without samples": ("my.onnx -m", "there are no samples for my.onnx"),
    "two models": ("my.onnx my.onnx photos", "cannot both be models"),
    "two folders": ("my.onnx photos samples.npz", "photos and samples.npz cannot both be samples"),
    "no such model alone": ("your.onnx", "your.onnx does not exist"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_in_one_line(seqto: Command, here: Path, case: str) -> None:
    typed, words = WRONG[case]
    assert words in complaint(seqto(*typed.split()))


@pytest.mark.slow
def test_a_study_in_two_words(seqto: Command, here: Path) -> None:
    sizes = ["dataset.calibration_size=10", "dataset.evaluation_size=30"]
    result = seqto("my.onnx", "samples.npz", *sizes, "search=ladder", "search.step=30")
    assert result.code == 0, result.err
    assert "models:/seqto-my-cpu-static" in result.out
    full = " ".join([*MODEL, "dataset=npz", "dataset.path=samples.npz", *sizes])
    assert result.err.startswith(f"seqto {full} ")
