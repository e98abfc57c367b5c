"""Studies side by side in the terminal."""

import string
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqto.figures import figure, in_percent
from seqto.report.comparison import (
    LIMITS,
    SIZE,
    Cell,
    ComparisonInfo,
    Smallest,
    Summary,
    compared,
)

MOST_ROWS = 12
FRONT_STYLE = "bold green"


def print_comparison(console: Console, info: ComparisonInfo) -> None:
    """Print what each study found, and the candidates that they share."""
    console.print(Text(info.title or "studies compared", "bold"))
    letters = _letters(len(info.studies))
    for letter, study in zip(letters, info.studies, strict=True):
        # Never cut: the name is what a person typed to make the study.
        line = Text.assemble((f"{letter}  ", "bold"), study.label, (f"  {study.run[:8]}", "dim"))
        console.print(line, soft_wrap=True)
    console.print()
    console.print(info.verdict, highlight=False, markup=False)
    console.print()
    console.print(_studies(info, letters))
    for caveat in info.caveats:
        console.print(caveat, style="dim", highlight=False, markup=False)
    console.print()
    if not info.rows:
        console.print("no candidate is in two of them", style="dim", highlight=False)
        return
    console.print(_shared(info, letters))
    if len(info.rows) > MOST_ROWS:
        console.print(f"and {len(info.rows) - MOST_ROWS} more", style="dim", highlight=False)


def _letters(count: int) -> list[str]:
    """Return a short name for each study: A to Z, then A2 and so on."""
    names, many = string.ascii_uppercase, len(string.ascii_uppercase)
    return [f"{names[at % many]}{at // many + 1 if at >= many else ''}" for at in range(count)]


def _studies(info: ComparisonInfo, letters: Sequence[str]) -> Table:
    table = _table("study")
    sizes = [f"size at {in_percent(limit, 0)}" for limit in LIMITS]
    for title in ("candidates", "front", "volume", *sizes, "latency", "float"):
        table.add_column(title, justify="right", no_wrap=title != "candidates")
    for letter, study in zip(letters, info.studies, strict=True):
        failed = f" ({study.failed} failed)" if study.failed else ""
        table.add_row(
            letter,
            f"{study.candidates}{failed}",
            str(study.front),
            f"{study.hypervolume:.3f}",
            *(_share(study.smallest[limit]) for limit in LIMITS),
            *_latencies(study),
        )
    return table


def _share(found: Smallest | None) -> str:
    return "none" if found is None else in_percent(found.size_ratio, 1)


def _latencies(study: Summary) -> tuple[str, str]:
    """Return the latency of its smallest candidate within the first limit, and the float's."""
    latency, found = figure("latency_ms"), study.smallest[LIMITS[0]]
    return (latency.text(found.latency_ms) if found else "", latency.text(study.float_ms))


def _shared(info: ComparisonInfo, letters: Sequence[str]) -> Table:
    """Return the smallest shared candidates; in green where they are on a study's front."""
    table = _table("shared candidate")
    table.add_column("layers" if info.mixed else "excluded", justify="right", no_wrap=True)
    for letter in letters:
        table.add_column(letter, justify="right")
    for row in info.rows[:MOST_ROWS]:
        cells = [_cell(row.cells.get(study.label)) for study in info.studies]
        table.add_row(row.name, row.candidate.counted(info.mixed), *cells)
    return table


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(first, overflow="fold")
    return table


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("")
    if cell.failure:
        return Text("failed", "red")
    # The rows are in the order of their sizes, and there is little room.
    figures = [each.text(cell.metrics.get(each.name)) for each in compared() if each.name != SIZE]
    return Text("  ".join(filter(None, figures)), FRONT_STYLE if cell.pareto else "")
