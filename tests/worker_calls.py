"""What the tests of workers have them do."""

import os
import sys
import time
from typing import Any

from seqto.errors import ConfigError

State = dict[str, Any]


def count(state: State) -> int:
    """Return how often this was called."""
    state["count"] = state.get("count", 0) + 1
    return int(state["count"])


def chatter(state: State) -> str:
    """Print, as Python and as native code do."""
    print("noise")
    os.write(1, b"native noise\n")
    return "answer"


def complain(state: State) -> None:
    """Raise an error of seqto's."""
    raise ConfigError("a cause, and a remedy")


def divide(state: State) -> float:
    """Raise another error."""
    return 1 / 0


def abort(state: State) -> None:
    """End the process as a failed check of native code does."""
    print("goodbye", file=sys.stderr, flush=True)
    os.abort()


def hang(state: State) -> None:
    """Never end."""
    while True:
        time.sleep(1)


def variable(state: State, name: str) -> str:
    """Return a variable of the environment."""
    return os.environ[name]
