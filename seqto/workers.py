"""Candidates measured side by side by processes of this machine, and recorded by this one."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from seqto.attempts import Attempt, attempts
from seqto.evaluate import Subject
from seqto.protocols import Tracker
from seqto.study import Assignment, record_attempt, start_trial
from seqto.subject import Parts, prepare_subject
from seqto.types import Candidate, TrialState
from seqto.workspace import Workspace

GROUP = 4
"""Candidates that a process measures in a row, so that it runs what they have in common once."""

_CRASHED = "its process ended; device.isolated=true finds the layers responsible"

_FORKS = "fork" in multiprocessing.get_all_start_methods()
"""A forked process has all that was prepared here at no cost. It makes the sessions that it uses
itself, so no thread of ONNX Runtime is lost."""


@dataclass(frozen=True)
class Running:
    """A group of assignments in a process, and the trials that are open for them."""

    group: Sequence[Assignment]
    trials: Sequence[str]
    future: "Future[list[Attempt]]"


class Workers:
    """Measures a study's candidates in so many processes, or in this one if it is one."""

    def __init__(self, parts: Parts, subject: Subject, tracker: Tracker, count: int) -> None:
        self._parts, self._subject, self._tracker = parts, subject, tracker
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    @property
    def batch(self) -> int:
        """How many candidates to give them at a time."""
        return GROUP * self._count

    def launch(self, study: str, assignments: Sequence[Assignment]) -> Iterator[str]:
        """Yield the ids of these assignments' trials, in their order, as they end."""
        open_trials: list[str] = []
        try:
            groups = _groups(assignments, self._count)
            run = self._side_by_side if self._count > 1 else self._in_this_process
            for trial in run(study, groups, open_trials):
                open_trials.remove(trial)
                yield trial
        except BaseException:
            for trial in open_trials:
                self._tracker.end_trial(trial, TrialState.KILLED, "interrupted")
            self.close()
            raise

    def close(self) -> None:
        """End the processes, whatever they do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            # Else they stay as zombies, and nobody counts what they took.
            for process in processes:
                process.join()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _in_this_process(
        self, study: str, groups: Sequence[Sequence[Assignment]], open_trials: list[str]
    ) -> Iterator[str]:
        for group in groups:
            made = attempts(self._parts, self._subject, [each.candidate for each in group])
            for each in group:
                trial = self._start(study, each, open_trials)
                self._record(study, trial, each, next(made))
                yield trial

    def _side_by_side(
        self, study: str, groups: Sequence[Sequence[Assignment]], open_trials: list[str]
    ) -> Iterator[str]:
        waiting, running = deque(groups), deque[Running]()
        while waiting or running:
            while waiting and len(running) < self._count:
                group = waiting.popleft()
                trials = [self._start(study, each, open_trials) for each in group]
                running.append(Running(group, trials, self._submit(group)))
            first = running.popleft()
            made = self._result(first)
            for trial, assignment, attempt in zip(first.trials, first.group, made, strict=True):
                self._record(study, trial, assignment, attempt)
                yield trial

    def _submit(self, group: Sequence[Assignment]) -> "Future[list[Attempt]]":
        candidates = [each.candidate for each in group]
        try:
            return self._processes().submit(_measure, candidates)
        except BrokenProcessPool:
            # It broke under another group, which is told so.
            self.close()
            return self._processes().submit(_measure, candidates)

    def _result(self, running: Running) -> list[Attempt]:
        """Return what the group scored; where a process crashed, each is tried on its own."""
        try:
            return running.future.result()
        except BrokenProcessPool:
            self.close()
            return [self._alone(each) for each in running.group]

    def _alone(self, assignment: Assignment) -> Attempt:
        with Workers(self._parts, self._subject, self._tracker, 1) as workers:
            try:
                return workers._submit([assignment]).result()[0]
            except BrokenProcessPool:
                # To look for the layers responsible, this process would run into it as well.
                return Attempt(failure=f"Crash: {_CRASHED}")

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("fork" if _FORKS else "spawn")
            _Job.parts, _Job.subject = self._parts, self._subject
            given = None if _FORKS else (self._parts, Workspace.default())
            self._pool = ProcessPoolExecutor(
                self._count, context, initializer=_begin, initargs=(os.getpid(), given)
            )
        return self._pool

    def _start(self, study: str, assignment: Assignment, open_trials: list[str]) -> str:
        trial = start_trial(self._tracker, study, assignment)
        open_trials.append(trial)
        return trial

    def _record(self, study: str, trial: str, assignment: Assignment, attempt: Attempt) -> None:
        record_attempt(self._tracker, study, trial, assignment, attempt, self._parts.device.name)


class _Job:
    """What a worker's process measures candidates of; a forked one inherits it."""

    parts: Parts
    subject: Subject


def _begin(parent: int, given: tuple[Parts, Workspace] | None) -> None:
    """Make a worker's process end with its parent, and not by what is meant for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if given is not None:
        parts, workspace = given
        _Job.parts, _Job.subject = parts, prepare_subject(parts, workspace)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _measure(candidates: Sequence[Candidate]) -> list[Attempt]:
    return list(attempts(_Job.parts, _Job.subject, candidates))


def _groups(assignments: Sequence[Assignment], count: int) -> list[Sequence[Assignment]]:
    """Return the assignments in groups, at least one for each process if there are enough."""
    size = min(GROUP, max(1, -(-len(assignments) // count)))
    return [assignments[at : at + size] for at in range(0, len(assignments), size)]


def usable_cores() -> int:
    """Return how many cores this process may use."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
