"""What loading takes: the time by a device's clock, and the memory of this process."""

import ctypes
import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.devices import loading as room
from seqto.devices.loading import is_watched, measured, note, watched
from seqto.freeing import give_back
from seqto.types import Loading

MB = 2**20

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of memory")


def ticking(*seconds: float) -> Callable[[], float]:
    """Return a clock that shows these times one after another."""
    times = iter(seconds)
    return lambda: next(times)


def taken(load: Callable[[], Any]) -> Loading:
    """Return what it takes to load."""
    _, loading = watched(lambda: measured(load, ticking(0, 1)))
    assert loading is not None
    return loading


def held_at_most(load: Callable[[], Any]) -> float:
    """Return how many MB loading takes."""
    peak = taken(load).peak_bytes
    assert peak is not None
    return peak / MB


def touched(megabytes: int) -> np.ndarray:
    """Return so much memory, all of it in use."""
    return np.ones(megabytes * MB, np.uint8)


@on_linux
def test_what_loading_leaves_behind_goes_back() -> None:
    def held() -> float:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1024

    def load() -> np.ndarray:
        # Too small to be mapped one by one, and one is left at the end.
        parts = [np.ones(2**12) for _ in range(4000)]
        return parts[-1]

    give_back()
    before = held()
    loaded, _ = watched(lambda: measured(load, ticking(0, 1)))
    # It takes 125 MB.
    assert held() - before < 20 and loaded.sum() == 2**12


def test_time_is_by_the_clock_that_is_given() -> None:
    loaded, loading = watched(lambda: measured(lambda: "program", ticking(7, 7.25)))
    assert loaded == "program"
    assert loading is not None and loading.ms == 250


def test_only_what_is_watched_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reset = tmp_path / "clear_refs"
    monkeypatch.setattr(room, "_CLEAR_REFS", reset)
    assert measured(lambda: "program", ticking()) == "program"
    assert watched(lambda: measured(lambda: "program", ticking()), False) == ("program", None)
    assert not reset.exists()
    assert not is_watched()


def test_what_nobody_measures_is_not_known() -> None:
    assert watched(lambda: "program") == ("program", None)
    # As where a device in another process does not tell.
    assert watched(lambda: note(None)) == (None, None)


def test_what_is_noted_elsewhere_is_passed_on() -> None:
    told = Loading(ms=3.0, peak_bytes=None)
    assert watched(lambda: note(told)) == (None, told)
    note(told)
    assert watched(lambda: None) == (None, None)


def test_a_load_that_fails_leaves_nobody_watching() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        watched(lambda: measured(fail, ticking(0, 1)))
    assert not is_watched()


@on_linux
def test_memory_is_what_is_held_at_most_meanwhile() -> None:
    kept = []

    def load() -> None:
        kept.append(touched(16))
        touched(48)

    assert held_at_most(load) == pytest.approx(64, abs=4)
    assert held_at_most(lambda: None) < 4


# In a process of its own: what a large one holds may be used once more, or be reclaimed meanwhile.
_EARLIER_PEAK = """
import numpy as np
from seqto.devices.loading import measured, watched

def touched(megabytes):
    return np.ones(megabytes * 2**20, np.uint8)

touched(128)
_, loading = watched(lambda: measured(lambda: touched(16), iter((0, 1)).__next__))
print(loading.peak_bytes / 2**20)
"""


@on_linux
def test_an_earlier_peak_does_not_count() -> None:
    found = subprocess.check_output([sys.executable, "-c", _EARLIER_PEAK], text=True)
    assert float(found) == pytest.approx(16, abs=4)


@on_linux
def test_memory_that_was_freed_before_counts_again() -> None:
    def pieces() -> list[np.ndarray]:
        # Below what glibc gives back to the system by itself.
        return [np.ones(16 * 1024, np.uint8) for _ in range(2048)]

    def freed() -> np.ndarray:
        before = pieces()
        # The last one, in use, keeps the others' memory in the process.
        return before[-1]

    last = freed()
    assert held_at_most(pieces) == pytest.approx(32, abs=4)
    assert last.all()


@on_linux
def test_pages_of_files_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "code"
    path.write_bytes(bytes(64 * MB))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert held_at_most(lambda: sum(pages[:: mmap.PAGESIZE])) < 8


STATUS = "Name:\tpython\nVmHWM:\t{peak} kB\nVmRSS:\t1000 kB\nRssFile:\t200 kB\n"


def fakes(folder: Path, monkeypatch: pytest.MonkeyPatch, status: str | None) -> None:
    """Let the system be one that tells this of the process."""
    monkeypatch.setattr(room, "_CLEAR_REFS", folder / "clear_refs")
    monkeypatch.setattr(room, "_STATUS", folder / "status")
    if status is not None:
        (folder / "status").write_text(status)


@on_linux
@pytest.mark.parametrize(
    ("status", "peak"),
    [
        (STATUS.format(peak=1000), 0.0),
        # The reset was accepted, but nothing was reset.
        (STATUS.format(peak=9000), None),
        (STATUS.format(peak="?"), None),
        ("Name:\tpython\nVmRSS:\t1000 kB\nRssFile:\t200 kB\n", None),
        (STATUS.format(peak=1000).replace("RssFile", "RssElse"), None),
        ("", None),
        (None, None),
    ],
)
def test_memory_is_not_told_where_the_system_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str | None, peak: float | None
) -> None:
    fakes(tmp_path, monkeypatch, status)
    assert taken(lambda: None) == Loading(ms=1000, peak_bytes=peak)


@on_linux
def test_memory_is_not_told_where_its_peak_must_not_be_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes(tmp_path, monkeypatch, STATUS.format(peak=1000))
    (tmp_path / "clear_refs").mkdir()
    assert taken(lambda: None) == Loading(ms=1000, peak_bytes=None)


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_memory_is_not_told_without_glibc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def missing(name: str | None) -> None:
        raise error("as with another C library, or on another system")

    fakes(tmp_path, monkeypatch, STATUS.format(peak=1000))
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert taken(lambda: None) == Loading(ms=1000, peak_bytes=None)
