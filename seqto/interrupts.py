"""Delays Ctrl-C and SIGTERM while something runs that must not be interrupted."""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Delay a signal until the block has ended; a second signal is not delayed.

    Signals reach only the main thread, and only handlers written in Python can be delayed: without
    one, a signal ends the process as usual.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {each: signal.getsignal(each) for each in _SIGNALS}
    waiting: list[tuple[int, FrameType | None]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))
        if len(waiting) > 1:
            _handle(number, frame)

    def _handle(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    held = [each for each, handler in handlers.items() if callable(handler)]
    for each in held:
        signal.signal(each, wait)
    try:
        yield
    finally:
        for each in held:
            signal.signal(each, handlers[each])
    for number, frame in waiting[:1]:
        _handle(number, frame)


def in_one_go(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with signals delayed until it has ended."""

    @functools.wraps(function)
    def whole(*args: P.args, **options: P.kwargs) -> T:
        with put_off():
            return function(*args, **options)

    return whole
