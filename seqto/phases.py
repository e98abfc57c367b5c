"""What a study is doing now, with counts, for whoever listens.

Like logging it is ambient: parts say what they do without knowing who shows it, and their protocols
stay free of it. Without a listener nothing happens.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

Listener = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much, if that is known."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have the listener called for what is done within the block, in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def say(what: str, done: int = 0, total: int | None = None) -> None:
    """Say what is being done, and how much of it is done already."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


def counted(what: str, items: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Yield the items, and say how many of them are done."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    say(what, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        say(what, done, total)
