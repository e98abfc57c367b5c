"""Time limits of inference: a model that does not end is told to, also by Ctrl-C and SIGTERM."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnxruntime

USUAL_SECONDS = 600.0
"""How long one batch may take where nobody says."""

_LOOK_SECONDS = 0.1
_ENDING = {signal.SIGINT, signal.SIGTERM}
_FATAL = 4
"""ONNX Runtime's level of logging: what it says about errors, it raises as well."""


class OverdueError(Exception):
    """A model that did not end in time."""


def run_limited(
    session: "onnxruntime.InferenceSession",
    names: Sequence[str] | None,
    inputs: Mapping[str, np.ndarray],
    seconds: float = USUAL_SECONDS,
) -> list[Any]:
    """Return these outputs, or all; raise OverdueError if that takes longer.

    ONNX Runtime looks between two nodes whether it is to end, also within loops. A signal ends the
    run if its handler raises; Python calls handlers only when ONNX Runtime has returned.
    """
    own, until = threading.get_ident(), time.monotonic() + seconds
    _watch()
    listens = _listen()
    try:
        while True:
            options = _quiet_options()
            _running[own] = until, options
            try:
                return list(session.run(names, dict(inputs), options))
            except Exception as error:  # ORT's own errors have no common base but Exception.
                if not options.terminate:
                    raise
                if time.monotonic() > until:
                    raise OverdueError(f"no answer within {seconds:g} s") from error
            # There was a signal, and its handler lets the model go on.
    finally:
        _running.pop(own, None)
        if listens:
            signal.set_wakeup_fd(-1)


def _quiet_options() -> "onnxruntime.RunOptions":
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    return options


_running: dict[int, tuple[float, "onnxruntime.RunOptions"]] = {}
"""What runs, by thread: until when it may, and where it is told to end."""

_watcher: threading.Thread | None = None

_told: tuple[socket.socket, socket.socket] | None = None
"""Where the watcher reads the numbers of signals, and where Python writes them at once."""


def _watch() -> None:
    """Start the one thread that looks after all that runs, unless it is there."""
    global _watcher, _told
    if _watcher is None:
        _told = socket.socketpair()
        for end in _told:
            end.setblocking(False)
        _watcher = threading.Thread(
            target=_look, args=_told[:1], name="seqto time limits", daemon=True
        )
        _watcher.start()


def _listen() -> bool:
    """Have the watcher told of signals, which only the main thread gets; return whether it is."""
    if _told is None or threading.current_thread() is not threading.main_thread():
        return False
    number = _told[1].fileno()
    before = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
    if before in (-1, number):
        return True
    # An event loop wants to be told itself.
    signal.set_wakeup_fd(before)
    return False


def _look(told: socket.socket) -> None:
    while True:
        if select.select([told], [], [], _LOOK_SECONDS)[0] and _ENDING & set(told.recv(64)):
            _end_main()
        now = time.monotonic()
        for until, options in list(_running.values()):
            if now > until:
                options.terminate = True


def _end_main() -> None:
    """End what the main thread runs, so that Python calls the handler of a signal."""
    _, options = _running.get(threading.main_thread().ident or 0, (0.0, None))
    if options is not None:
        options.terminate = True


def _begin_anew() -> None:
    """Forget the threads of the parent process, which a forked one does not have."""
    global _watcher, _told
    _watcher = _told = None
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
