"""`python -m seqto.report`: a study's files, made again from what MLflow holds."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from seqto.cli.ending import end_with
from seqto.cli.pointers import print_lines, stdout_console
from seqto.errors import TrackingError
from seqto.study.device_limits import DOCUMENT

REPORT = "report.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files of the study that the command line names."""
    given = _parser().parse_args(arguments)
    try:
        write_again(given.run, given.tracking_uri, given.output, given.log)
    except Exception as error:
        end_with(error)


def write_again(run: str, uri: str | None, folder: Path, log: bool) -> None:
    """Write the report and the pictures of this study, and log them to it if wanted."""
    # MLflow takes seconds to import, and --help needs none of it.
    from seqto.pareto.front import find_front
    from seqto.pareto.limits import ANSWER, constraint_of, with_answer
    from seqto.report.files import write_files
    from seqto.tracking.mlflow import open_existing

    tracker = open_existing(uri)
    tracker.check_finished(run)
    record = tracker.read_study(run)
    document = tracker.read_document(run, REPORT)
    if document is None:
        raise TrackingError(f"study {run!r} has no {REPORT}: its final step was cut short.")
    # As the study itself did: it had as many recommendations as it was told to make.
    count = len(document["recommended"].keys() - {ANSWER})
    front = find_front(record.trials, document["objectives"], record.baseline, count)
    front = with_answer(front, constraint_of(record))
    exclusions = tracker.read_document(run, DOCUMENT)
    files = write_files(folder, record, front, document["environment"], exclusions)
    if log:
        tracker.log_files(run, files)
    lines = {"report": str(folder / "report.html"), "picture": str(folder / "front.png")}
    print_lines(stdout_console(), lines | ({"logged": run} if log else {}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seqto.report",
        description="Make a study's report.html, report.json and pictures again, from MLflow.",
    )
    parser.add_argument("run", metavar="RUN", help="the id of the study's MLflow run")
    add_tracking_uri(parser)
    add_output(parser)
    parser.add_argument("--log", action="store_true", help="also log the files to the study's run")
    return parser


def add_tracking_uri(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which MLflow is read."""
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="the MLflow that has it (default: MLFLOW_TRACKING_URI, else mlflow.db here)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where files are written."""
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        type=Path,
        default=Path(),
        help="where the files are written (default: this folder)",
    )
