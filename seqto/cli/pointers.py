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
    """Return the console to print on; in files and pipes it is wide enough for tables."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return rich.get_console()
    return Console(width=_WIDTH_OF_FILES)


def where_to_look(tracker: Tracker, run: str) -> dict[str, str]:
    """Return the run's page, preceded by the command that serves it if one is needed."""
    address = tracker.address(run)
    return ({"serve": address.command} if address.command else {}) | {"open": address.url}


def print_lines(console: Console, lines: Mapping[str, str]) -> None:
    """Print labelled lines without wrapping, so that they can be copied."""
    for label, text in lines.items():
        console.print(
            f"{label + ':':<9}{shortened(text)}", soft_wrap=True, highlight=False, markup=False
        )


def shortened(text: str) -> str:
    """Return a path below this folder as a relative path, and anything else unchanged."""
    here = f"{Path.cwd()}/"
    return text.removeprefix(here)
