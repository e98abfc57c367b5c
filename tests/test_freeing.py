"""Memory that goes back to the system."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from seqto.freeing import give_back, let_go, owned
from seqto.graph.sessions import single_session
from seqto.types import Model, Samples, samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident(path: Path) -> int:
    """Return how many KiB of this file are in the memory of this process."""
    maps = Path("/proc/self/smaps").read_text()
    found = re.findall(rf"{re.escape(str(path))}\n(?:.*\n)*?Rss:\s+(\d+) kB", maps)
    return sum(map(int, found))


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    """Return an array of 4 MiB that is mapped from a file."""
    np.save(tmp_path / "samples.npy", np.arange(2**20, dtype=np.float32).reshape(256, -1))
    return np.load(tmp_path / "samples.npy", mmap_mode="r")


def test_pages_of_a_file_are_let_go_and_read_again(mapped: np.ndarray, tmp_path: Path) -> None:
    total = mapped.sum(dtype=np.float64)
    assert resident(tmp_path / "samples.npy") >= 4096
    # A part of it will do.
    let_go(mapped[10:20])
    assert resident(tmp_path / "samples.npy") == 0
    assert mapped.sum(dtype=np.float64) == total


def test_arrays_in_memory_stay_as_they_are() -> None:
    array = np.arange(10)
    let_go(array)
    assert array.tolist() == list(range(10))


def test_an_array_that_was_changed_is_not_let_go(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2**16))
    changed = np.load(tmp_path / "a.npy", mmap_mode="c")
    changed[:] = 1
    let_go(changed)
    assert changed.sum() == 2**16


def test_samples_are_let_go_while_they_are_read(
    mapped: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_HELD_BYTES", 2**20)
    read = Samples({"x": mapped}, tuple(map(str, range(256))))
    most, total = 0, 0.0
    for batch in read.batches(4):
        total += float(batch["x"].sum(dtype=np.float64))
        most = max(most, resident(tmp_path / "samples.npy"))
    # 1 of 4 MiB is held at a time, and what the system reads ahead.
    assert 0 < most < 4096
    assert resident(tmp_path / "samples.npy") == 0
    assert total == mapped.sum(dtype=np.float64)


def held() -> int:
    """Return how many KiB this process holds besides the pages of files."""
    (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line)


def test_outputs_that_are_kept_do_not_keep_what_else_a_session_took() -> None:
    text = "wide (float[n, 4096] x) => (float[n, 1] y) { a = Exp (x) y = ReduceMax <axes=[1]> (a) }"
    graph = onnx.parser.parse_graph(text)
    opsets = [onnx.helper.make_opsetid("", 13)]
    model = Model("wide", onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets))
    wide = np.zeros((2**11, 2**12), np.float32)

    def outputs() -> list[np.ndarray]:
        session = single_session(model)
        return [each for _ in range(4) for each in session.run(None, {"x": wide})]

    outputs()
    give_back()
    before = held()
    within = outputs()
    give_back()
    # Each run needs 32 MiB between its input and its output of 8 KiB.
    assert held() - before > 30_000
    kept = owned(within)
    give_back()
    assert held() - before < 10_000
    assert all(np.array_equal(each, np.ones((2**11, 1))) for each in kept)


def test_what_owns_its_memory_is_not_copied() -> None:
    array, other = np.ones(3), {"a sequence": 1.0}
    found = owned([array, other])
    assert found[0] is array and found[1] is other


def test_freed_memory_goes_back() -> None:
    # Too small to be mapped one by one, and one is left at the end: nothing goes back by itself.
    arrays = [np.ones(2**12) for _ in range(4000)]
    last = np.ones(2**12)
    before = held()
    del arrays
    if not give_back():
        pytest.skip("this system has no malloc_trim")
    assert before - held() > 50_000 and last.sum() == 2**12


KEPT = """
import sys
import numpy as np
from seqto.freeing import give_back_large
if sys.argv[1] == "now":
    give_back_large()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
np.ones(3 * 2**20)  # Its end teaches glibc to keep blocks of this size.
first, behind = np.ones(2**21), np.ones(2**21)
before = resident()
del first
print(before - resident())
"""


@pytest.mark.skipif(not give_back(), reason="not with glibc")
def test_large_blocks_go_back_as_soon_as_they_are_freed() -> None:
    def freed(when: str) -> int:
        command = [sys.executable, "-c", KEPT, when]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert freed("never") < 2**20
    assert freed("now") >= 2**24
