"""Memory that goes back to the system when it is not needed, instead of waiting to be used again.

A study's phases need different things, and its worker processes inherit what the first one holds.
"""

import contextlib
import ctypes
import mmap
from typing import Any

import numpy as np

_MMAP_THRESHOLD = -3
"""What glibc calls the parameter."""

_LARGE_BYTES = 2**22
"""Blocks of a few megabytes are used again and again: getting them anew takes time."""


def give_back() -> bool:
    """Return freed memory to the system; tell whether that could be done."""
    return _told_glibc("malloc_trim", 0)


def give_back_large() -> None:
    """Have glibc return each large block as soon as it is freed, from now on in this process.

    Otherwise it keeps more of them the larger the blocks are that were freed before.
    """
    _told_glibc("mallopt", _MMAP_THRESHOLD, _LARGE_BYTES)


def _told_glibc(function: str, *numbers: int) -> bool:
    """Call a function of glibc; tell whether there is one on this system."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        getattr(ctypes.CDLL(None), function)(*numbers)
        return True
    return False


def let_go(array: np.ndarray) -> None:
    """Let the pages of an array go that is mapped from a file; they are read again when needed."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(mmap.MADV_DONTNEED)


def owned(outputs: list[Any]) -> list[Any]:
    """Return what a session returned, in memory of its own.

    ONNX Runtime returns arrays within its pool, of which no page is freed while one of them is
    kept: 20 outputs of 16 KB held 40 MB, and 122 MB of activations 180 MB.
    """
    for at, each in enumerate(outputs):
        if isinstance(each, np.ndarray) and not each.flags.owndata:
            # One by one, so that large outputs are not all held twice.
            outputs[at] = each.copy()
    return outputs
