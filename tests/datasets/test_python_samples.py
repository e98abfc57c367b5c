"""Samples that a function of the user's own yields."""

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from suite_datasets import DatasetSuite

from seqto.datasets.python_samples import PythonSamples
from seqto.errors import ConfigError, DatasetError
from seqto.identity import identity
from seqto.protocols import Dataset
from seqto.types import TensorSpec

SPEC = TensorSpec("x", (None, 3, 4), "float32")

MODULE = """
import numpy as np

def samples(seed=0):
    draw = np.random.RandomState(seed)
    for at in range(40):
        target = {"text": f"sample {at}", "boxes": np.ones((at % 3, 4))}
        yield draw.rand(3, 4).astype(np.float32), target

def others():
    return samples(1)

def nothing():
    return iter(())

def none():
    pass

def array():
    return next(zip(*samples()))

def misshapen():
    for at in range(40):
        yield np.zeros((3, 4) if at < 30 else (4, 4), np.float32) + at

def failing():
    yield np.zeros((3, 4), np.float32)
    raise KeyError("row")

def fails():
    raise OSError("no such table")

def needs(path):
    return samples()

LISTED = [sample for sample, _ in samples()]
NUMBER = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the current folder, which has a module of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "user_data.py").write_text(MODULE)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("user_data", None)


class TestPython(DatasetSuite):
    """The conformance suite."""

    @pytest.fixture
    def dataset(self) -> Dataset:
        """Return the dataset of a generator."""
        return PythonSamples(target="user_data:samples")

    @pytest.fixture
    def other(self) -> Dataset:
        """Return another generator's."""
        return PythonSamples(target="user_data:others")

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input that the samples fit."""
        return SPEC


def test_targets_are_what_the_function_yields() -> None:
    evaluation = PythonSamples(target="user_data:samples").load([SPEC]).evaluation
    assert evaluation.targets is not None
    assert all(each["text"].startswith("sample ") for each in evaluation.targets)
    assert {len(each["boxes"]) for each in evaluation.targets} == {0, 1, 2}


@pytest.mark.parametrize("target", ["user_data:LISTED", "user_data:array"])
def test_lists_and_functions_that_return_them_are_taken(target: str) -> None:
    found = PythonSamples(target=target).load([SPEC])
    wanted = PythonSamples(target="user_data:samples").load([SPEC])
    np.testing.assert_array_equal(found.evaluation.inputs["x"], wanted.evaluation.inputs["x"])
    assert found.evaluation.targets is None


def test_an_edited_function_is_another_dataset(folder: Path) -> None:
    before = identity(PythonSamples(target="user_data:samples"))
    assert before == identity(PythonSamples(target="user_data:samples"))
    edited = folder / "user_data.py"
    edited.write_text(MODULE.replace("range(40)", "range(41)"))
    # Python takes a file of the same size and second for the one that it compiled.
    os.utime(edited, (later := time.time() + 10, later))
    sys.modules.pop("user_data")
    importlib.invalidate_caches()
    assert identity(PythonSamples(target="user_data:samples")) != before


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("user_data", "has to be a module and a name"),
        ("user_dat:samples", "cannot be imported .*user_dat.*a file in"),
        ("user_data:sample", r"has no 'sample' \(did you mean 'samples'"),
    ],
)
def test_what_is_not_there_is_refused(target: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PythonSamples(target=target)


def test_a_module_that_fails_is_refused(folder: Path) -> None:
    (folder / "broken_data.py").write_text("import not_there_at_all")
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match=r"cannot be imported \(ModuleNotFoundError.*not_there"):
        PythonSamples(target="broken_data:samples")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", "user_data:nothing: samples gives nothing"),
        ("none", "returns None"),
        ("misshapen", r"\[3, 4\] and \[4, 4\] \(sample 30\)"),
        ("failing", "fails at sample 1, counted from 0: KeyError: 'row'"),
        ("fails", "fails: OSError: no such table"),
        ("needs", "TypeError: .*path"),
    ],
)
def test_samples_that_cannot_be_had_are_refused_in_one_line(name: str, text: str) -> None:
    with pytest.raises(DatasetError, match=text) as caught:
        PythonSamples(target=f"user_data:{name}").load([SPEC])
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("dataset.target=") == 1


def test_what_is_no_set_of_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be of type int"):
        PythonSamples(target="user_data:NUMBER").load([SPEC])
