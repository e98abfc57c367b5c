"""`python -m seqto.report`: a study's files, written again from MLflow."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from seqto.cli.ending import end_with
from seqto.cli.pointers import print_lines, stdout_console
from seqto.report.writing import PAGE, PICTURE, write_files


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files of the study that the command line names."""
    given = _parser().parse_args(arguments)
    try:
        write_again(given.run, given.tracking_uri, given.output, given.log)
    except Exception as error:
        end_with(error)


def write_again(run: str, uri: str | None, folder: Path, log: bool) -> None:
    """Write the study's report and pictures, and log them to its run if `log`."""
    # MLflow takes seconds to import, and --help does not need it.
    from seqto.api.held import held_study
    from seqto.report.page_links import links_of
    from seqto.tracking.mlflow import open_existing

    console = stdout_console()
    console.print(f"reading study {run}, writing its files", style="dim", highlight=False)
    tracker = open_existing(uri)
    held = held_study(tracker, run)
    links = links_of(tracker, run, held.front)
    files = write_files(folder, held.record, held.front, held.environment, held.exclusions, links)
    if log:
        tracker.log_files(run, files)
    lines = {"report": str(folder / PAGE), "picture": str(folder / PICTURE)}
    print_lines(console, lines | ({"logged": run} if log else {}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqto report",
        description="Write a study's report.html, report.json and pictures again, from MLflow.",
    )
    parser.add_argument("run", metavar="RUN", help="the id of the study's MLflow run")
    add_tracking_uri(parser)
    add_output(parser)
    parser.add_argument("--log", action="store_true", help="also log the files to the study's run")
    return parser


def add_tracking_uri(parser: argparse.ArgumentParser) -> None:
    """Add the option for which MLflow to read."""
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="the MLflow to read (default: MLFLOW_TRACKING_URI, else mlflow.db here)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option for where to write files."""
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        type=Path,
        default=Path(),
        help="where the files are written (default: this folder)",
    )
