"""`python -m seqto.compare`: studies from MLflow, side by side."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from seqto.cli.ending import end_with
from seqto.cli.pointers import print_lines, stdout_console
from seqto.cli.reporting import add_output, add_tracking_uri
from seqto.errors import ConfigError, TrackingError
from seqto.report.comparison import Report
from seqto.report.writing import PAGE, REPORT


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the studies that the command line names."""
    given = _parser().parse_args(arguments)
    try:
        compare_runs(given.runs, given.tracking_uri, given.output)
    except Exception as error:
        end_with(error)


def compare_runs(runs: Sequence[str], uri: str | None, folder: Path) -> None:
    """Compare the studies of these runs: in the terminal, and as a page in the folder."""
    # MLflow takes seconds to import, and --help does not need it.
    from seqto.tracking.mlflow import open_existing

    if len(set(runs)) < 2:
        raise ConfigError("a comparison needs the runs of two or more different studies.")
    stdout_console().print(f"reading {len(set(runs))} studies", style="dim", highlight=False)
    tracker = open_existing(uri)
    reports = []
    for run in dict.fromkeys(runs):
        tracker.check_finished(run)
        report = tracker.read_document(run, REPORT)
        if report is None:
            raise TrackingError(f"study {run!r} has no {REPORT}: its final step was cut short.")
        reports.append(report)
    _show(folder, reports)


def compare_files(folder: Path, reports: Sequence[Path]) -> None:
    """Compare studies by their report.json, if there are at least two."""
    if len(reports) > 1:
        pages = [os.path.relpath(path.with_name(PAGE), folder) for path in reports]
        _show(folder, [json.loads(path.read_text(encoding="utf-8")) for path in reports], pages)


def _show(folder: Path, reports: Sequence[Report], pages: Sequence[str] = ()) -> None:
    from seqto.report.comparison_page import write_comparison
    from seqto.report.comparison_table import print_comparison

    info, page = write_comparison(folder, reports, pages)
    console = stdout_console()
    console.print()
    print_comparison(console, info)
    print_lines(console, {"compare": str(page)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqto compare",
        description="Compare studies of different devices, quantizations or models side by side.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the ids of studies' MLflow runs")
    add_tracking_uri(parser)
    add_output(parser)
    return parser
