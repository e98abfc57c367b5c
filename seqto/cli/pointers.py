"""The console, and the last lines of a command: where to look."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import rich
from rich.console import Console

from seqto.protocols import Tracker

_WIDTH_OF_FILES = 120


def stdout_console() -> Console:
    """Return the console to print on; in a file or a pipe its lines are long enough for tables."""
    if sys.stdout.isatty():
        return rich.get_console()
    width = None if "COLUMNS" in os.environ else _WIDTH_OF_FILES
    # In a notebook plain text will do: what moves would leave its traces there.
    moves = False if Console().is_jupyter else None
    return Console(width=width, force_jupyter=moves, force_terminal=moves)


def where_to_look(tracker: Tracker, run: str) -> dict[str, str]:
    """Return the run's page, preceded by the command that serves it if one is needed."""
    address = tracker.address(run)
    return ({"serve": address.command} if address.command else {}) | {"open": address.url}


def print_lines(console: Console, lines: Mapping[str, str]) -> None:
    """Print labelled lines without wrapping, so that they can be copied."""
    for label, text in lines.items():
        console.print(
            f"{label + ':':<8} {shortened(text)}", soft_wrap=True, highlight=False, markup=False
        )


def shortened(text: str) -> str:
    """Return a path below this folder as a relative path, and anything else unchanged."""
    here = f"{Path.cwd()}/"
    return text.removeprefix(here)
