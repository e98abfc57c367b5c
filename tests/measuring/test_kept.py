"""Activations that are kept in a file."""

import tempfile
import tracemalloc
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from seqto.graph.segments import Cut
from seqto.measuring import kept
from seqto.measuring.kept import Kept

CUT = Cut(3, ("x",), 4)


@pytest.fixture
def every_byte_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_IN_MEMORY", 0)


@pytest.fixture
def almost_full_disk() -> Iterator[None]:
    """Let no file grow beyond 100 KB."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def numbers(seed: int) -> np.ndarray:
    return np.random.RandomState(seed).randn(2, 8, 500).astype(np.float32)


@pytest.mark.usefixtures("every_byte_in_the_file")
def test_batches_come_back_in_any_order() -> None:
    batches = [
        {"x": numbers(0), "turned": numbers(1).T, "none": np.zeros((0, 3), np.float32)},
        {"x": numbers(2), "one": np.array(True), "words": np.array(["a", "b"], object)},
        {"x": numbers(3).astype(np.float16), "short": numbers(4).astype(ml_dtypes.bfloat16)},
    ]
    some = Kept(CUT)
    for number, each in enumerate(batches):
        some.add(number, each)
    assert some.size == sum(array.nbytes for each in batches for array in each.values())
    for number in (2, 0, 1, 0):
        found = some.batch(number)
        assert found.keys() == batches[number].keys()
        for name, wanted in batches[number].items():
            assert found[name].dtype == wanted.dtype
            np.testing.assert_array_equal(found[name], wanted)


def test_what_is_large_takes_little_memory() -> None:
    tracemalloc.start()
    some = Kept(CUT)
    for number in range(40):
        some.add(number, {"x": np.full(2**18, number, np.float32)})
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert some.size == 40 * 2**20
    assert taken < 20 * 2**20
    assert [int(some.batch(number)["x"][-1]) for number in range(40)] == [*range(40)]


@pytest.mark.usefixtures("every_byte_in_the_file", "almost_full_disk")
def test_what_a_full_disk_does_not_take_stays_in_memory() -> None:
    some = Kept(CUT)
    for number in range(6):
        some.add(number, {"x": numbers(number), "y": numbers(-number % 9)})
    for number in range(6):
        np.testing.assert_array_equal(some.batch(number)["x"], numbers(number))
        np.testing.assert_array_equal(some.batch(number)["y"], numbers(-number % 9))


@pytest.mark.usefixtures("every_byte_in_the_file")
def test_without_a_place_for_files_all_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    some = Kept(CUT)
    some.add(0, {"x": numbers(0)})
    np.testing.assert_array_equal(some.batch(0)["x"], numbers(0))
