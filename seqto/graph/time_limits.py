"""Time limits of inference: a model that does not end is told to."""

import os
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

    ONNX Runtime looks between two nodes whether it is to end, also within loops.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    _watch()
    own = threading.get_ident()
    _running[own] = time.monotonic() + seconds, options
    try:
        return list(session.run(names, dict(inputs), options))
    except Exception as error:  # ORT's own errors have no common base but Exception.
        if not options.terminate:
            raise
        raise OverdueError(f"no answer within {seconds:g} s") from error
    finally:
        del _running[own]


_running: dict[int, tuple[float, "onnxruntime.RunOptions"]] = {}
"""What runs, by thread: until when it may, and where it is told to end."""

_watcher: threading.Thread | None = None


def _watch() -> None:
    """Start the one thread that looks after all that runs, unless it is there."""
    global _watcher
    if _watcher is None:
        _watcher = threading.Thread(target=_look, name="seqto time limits", daemon=True)
        _watcher.start()


def _look() -> None:
    while True:
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        for until, options in list(_running.values()):
            if now > until:
                options.terminate = True


def _begin_anew() -> None:
    """Forget the threads of the parent process, which a forked one does not have."""
    global _watcher
    _watcher = None
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
