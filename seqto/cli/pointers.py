"""The last lines of a run: where to look."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from seqto.protocols import Tracker


def where_to_look(tracker: Tracker, run: str) -> dict[str, str]:
    """Return the run's page, after the command that serves it where one is needed."""
    address = tracker.address(run)
    return ({"serve": address.command} if address.command else {}) | {"open": address.url}


def print_lines(console: Console, lines: Mapping[str, str]) -> None:
    """Print labelled lines, each whole, so that it can be copied."""
    for label, text in lines.items():
        console.print(
            f"{label + ':':<9}{shortened(text)}", soft_wrap=True, highlight=False, markup=False
        )


def shortened(text: str) -> str:
    """Return a path below this folder as a relative one, and anything else as it is."""
    here = f"{Path.cwd()}/"
    return text.removeprefix(here)
