"""What a study costs on 1, 2 and 4 workers of ray, and what one of 50 machines would move.

    python scripts/benchmark_scale.py                                    # the embedded model
    python scripts/benchmark_scale.py --model my.onnx --samples photos   # a larger one

Bytes and requests are counted, not guessed: what ray's object store holds, what a task and its
answer are, and what an MLflow server is asked for by two studies of different length. Then
candidates are timed, for long enough to take a second or more: the table has, for processes of this
machine (as without a launcher) and for ray, the time of all, and what ray costs beyond the other.
"""

import argparse
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from seqto.config.build import Context, build_context
from seqto.config.compose import composed
from seqto.config.own_files import model_words, sample_words
from seqto.measuring.cluster import Cluster, connected
from seqto.measuring.kit import Kit, measure_ordered
from seqto.measuring.pool import Pool
from seqto.measuring.record import Assignment
from seqto.tracking.memory import MemoryTracker
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Candidate, StudyPlan

CANDIDATES = 8
MACHINES, MANY = 50, 2000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--samples")
    parser.add_argument("--repeats", type=int, default=12_000, help="inferences that are timed")
    parser.add_argument("--counts", action="store_true", help="count only, and time nothing")
    parser.add_argument("--times", action="store_true", help="time only, and count nothing")
    parser.add_argument("more", nargs="*", help="further words of a study")
    given = parser.parse_args(arguments)
    words = [*model_words(given.model), *sample_words(given.samples)] if given.model else []
    words += [f"device.repeats={1 if given.counts else given.repeats}", *given.more]
    context = build_context(composed(words), {"tracking": MemoryTracker()})
    if not given.times:
        _print_bytes(context)
        _print_requests(context)
    if not given.counts:
        _print_times(context)


def _assignments(context: Context) -> list[Assignment]:
    names = context.subject.layer_names
    return [Assignment(at, Candidate.excluding(names, names[:at])) for at in range(CANDIDATES)]


def _others(context: Context, count: int) -> list[Assignment]:
    """Return candidates to begin with: what a pool has measured once it does not measure again."""
    names = context.subject.layer_names
    return [Assignment(at, Candidate.excluding(names, names[-at - 1 :])) for at in range(count)]


def _print_times(context: Context) -> None:
    assignments, parts, subject = _assignments(context), context.parts, context.subject
    print("\n| workers | processes, s | ray, s | ray costs, ms a candidate |\n|---|---|---|---|")
    for count in (1, 2, 4):
        first = _others(context, count)
        with Pool(parts, subject, MemoryTracker(), count) as pool:
            list(pool.launch(None, first))
            here = _seconds(pool, assignments)
        options = {"num_cpus": count, "logging_level": 40, "log_to_driver": False}
        with connected(options):
            cluster = Cluster(parts, subject, MemoryTracker(), 1, {"num_cpus": 1})
            # Processes start, import and get the study's content once.
            list(cluster.launch(None, first))
            there = _seconds(cluster, assignments)
        costs = (there - here) / CANDIDATES * 1000
        print(f"| {count} | {here:.1f} | {there:.1f} | {costs:.0f} |", flush=True)


def _seconds(pool: Pool | Cluster, assignments: Sequence[Assignment]) -> float:
    begin = time.monotonic()
    list(pool.launch(None, assignments))
    return time.monotonic() - begin


def _print_bytes(context: Context) -> None:
    kit = Kit.of(context.parts, context.subject)
    whole, (first, *_) = len(pickle.dumps(kit)), _assignments(context)
    order = kit.order(first.candidate)
    task, answer = len(pickle.dumps(order)), len(pickle.dumps(measure_ordered(kit, [order])))
    total = MACHINES * whole + MANY * (task + answer)
    print(f"bytes: {whole:,} a machine once, {task} to order a candidate, {answer:,} its answer")
    print(f"{MACHINES} machines, {MANY:,} candidates: {total:,} bytes")


@dataclass
class Asked:
    """How often a server was asked, and how many bytes went either way."""

    count: int = 0
    sent: int = 0
    received: int = 0


def _print_requests(context: Context) -> None:
    few, many = (_asked(context, count) for count in (2, CANDIDATES))
    each = (many.count - few.count) / (CANDIDATES - 2)
    sent = (many.sent + many.received - few.sent - few.received) / (CANDIDATES - 2)
    once = few.count - 2 * each
    print(f"\nrequests: {each:g} a candidate with {sent:,.0f} bytes, {once:g} a study besides")
    print("(opened, recorded and read again; the front's models come on top)")
    total, moved = once + MANY * each, MANY * sent
    print(
        f"{MANY:,} candidates, on however many machines: {total:,.0f} requests, {moved:,.0f} bytes"
    )


def _asked(context: Context, count: int) -> Asked:
    """Return what a server is asked for while a study of so many candidates is recorded."""
    asked, send = Asked(), requests.Session.send

    def counted(session: Any, request: Any, **options: Any) -> Any:
        answer = send(session, request, **options)
        asked.count += 1
        asked.sent += int(request.headers.get("Content-Length") or 0)
        asked.received += len(answer.content)
        return answer

    with tempfile.TemporaryDirectory() as folder, _Server(Path(folder)) as uri:
        tracker = MlflowTracker(uri=uri)
        tracker.check_answers()
        requests.Session.send = counted  # type: ignore[method-assign]
        try:
            run = tracker.open_study(StudyPlan("key", "study", {}, {}, "", ()), False)
            pool = Pool(context.parts, context.subject, tracker)
            for trial in pool.launch(run, _assignments(context)[:count]):
                tracker.trial(trial)
            tracker.read_study(run)
        finally:
            requests.Session.send = send  # type: ignore[method-assign]
    return asked


class _Server:
    """An MLflow server on a new sqlite store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = Path(__file__).with_name("serve.py")
        command = [sys.executable, str(script), "--backend", f"sqlite:///{self._folder}/runs.db"]
        command += ["--folder", str(self._folder), "--port", str(port), "--workers", "1"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        uri = f"http://127.0.0.1:{port}"
        while self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5).close()
                return uri
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


if __name__ == "__main__":
    main()
