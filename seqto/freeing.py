"""Memory that goes back to the system when it is not needed, instead of waiting to be used again.

A study's phases need different things, and its worker processes inherit what the first one holds.
"""

import contextlib
import ctypes
import mmap

import numpy as np


def give_back() -> bool:
    """Return freed memory to the system; tell whether that could be done."""
    # Not on systems without glibc, which has it.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
        return True
    return False


def let_go(array: np.ndarray) -> None:
    """Let the pages of an array go that is mapped from a file; they are read again when needed."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(mmap.MADV_DONTNEED)
