"""The Hydra entry: the only room that builds objects from config."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from seqto.cli.complaints import end_with


def main() -> None:
    """Run what the command line asks for; bad input gets one line and exit code 1."""
    # Hydra then lets exceptions through, instead of printing parts of their tracebacks.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # A polite kill ends a study as Ctrl-C does: nothing is left that looks as if it still ran.
    signal.signal(signal.SIGTERM, _terminate)
    from seqto.cli.entry import entry

    try:
        entry()
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on where it stopped.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        end_with(error)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
