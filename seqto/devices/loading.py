"""What loading a model takes, measured where it is loaded and only if somebody watches.

Memory is what the process holds at most while it loads the model, beyond what it held before,
without the pages of files: the first model of a process also brings in the runtime's code. Asking
for it resets the peak that the system keeps of the process (VmHWM, ru_maxrss).
"""

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from seqto.freeing import give_back
from seqto.types import Loading

Result = TypeVar("Result")

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"

_UNSETTLED = 2**20
"""How far a peak may be above the memory in use right after its reset: other threads go on."""

_watch: ContextVar[list[Loading] | None] = ContextVar("watch", default=None)


def watched(load: Callable[[], Result], is_wanted: bool = True) -> tuple[Result, Loading | None]:
    """Return what `load` returns, and what was noted meanwhile, if that is wanted."""
    if not is_wanted:
        return load(), None
    notes: list[Loading] = []
    token = _watch.set(notes)
    try:
        return load(), notes[-1] if notes else None
    finally:
        _watch.reset(token)


def is_watched() -> bool:
    """Return whether somebody wants to know what loading takes."""
    return _watch.get() is not None


def note(loading: Loading | None) -> None:
    """Tell who watches what loading took, if it is known."""
    notes = _watch.get()
    if notes is not None and loading is not None:
        notes.append(loading)


def measured(load: Callable[[], Result], clock: Callable[[], float]) -> Result:
    """Return what `load` returns; if somebody watches, note what it took by this clock."""
    if not is_watched():
        return load()
    before = _fresh_peak()
    start = clock()
    loaded = load()
    taken = clock() - start
    note(Loading(ms=taken * 1000, peak_bytes=_growth(before)))
    # Decoding coded weights leaves more behind than the model takes.
    give_back()
    return loaded


@dataclass(frozen=True)
class _Memory:
    """The memory of this process in bytes: at most, now, and of that the pages of files."""

    peak: int
    resident: int
    files: int


def _fresh_peak() -> _Memory | None:
    """Return the memory of this process after a reset of its peak; None if that cannot be done."""
    # Otherwise memory that was freed before would be used again, and hide the growth.
    if not give_back():
        return None
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        # No permission, or another system.
        return None
    found = _memory()
    reset = found is not None and found.peak <= found.resident + _UNSETTLED
    return found if reset else None


def _growth(before: _Memory | None) -> float | None:
    """Return by how much memory was above what it was before, at its peak."""
    after = _memory()
    if before is None or after is None:
        return None
    return float(max(after.peak - before.resident - max(after.files - before.files, 0), 0))


def _memory() -> _Memory | None:
    """Return the memory of this process; None if the system does not tell."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        pairs = (line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
        told = dict(pairs)
        wanted = (told[name] for name in ("VmHWM", "VmRSS", "RssFile"))
        return _Memory(*(int(each.split()[0]) * 1024 for each in wanted))
    return None
