"""What takes most memory is done by some of the processes at a time: half of them, at least one.

That is coding weights, loading models, and timing, for which two models are loaded.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any


class _Own:
    """What this process has to hold meanwhile; nothing if it is alone."""

    permits: AbstractContextManager[Any] = nullcontext()


def at_once(processes: int) -> int:
    """Return how many of so many processes may be at their peak at once."""
    return max(processes // 2, 1)


def share(permits: AbstractContextManager[Any]) -> None:
    """Have this process wait for others that share these permits."""
    _Own.permits = permits


def peak() -> AbstractContextManager[Any]:
    """Return what to hold while much memory is taken."""
    return _Own.permits
