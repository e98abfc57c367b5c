"""What takes most memory is done by one process at a time: coding weights and loading models.

So is timing, for which two models are loaded.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any


class _Own:
    """What this process has to hold meanwhile; nothing if it is alone."""

    lock: AbstractContextManager[Any] = nullcontext()


def share(lock: AbstractContextManager[Any]) -> None:
    """Have this process wait for others that share this lock."""
    _Own.lock = lock


def one_at_a_time() -> AbstractContextManager[Any]:
    """Return what to hold while much memory is taken."""
    return _Own.lock
