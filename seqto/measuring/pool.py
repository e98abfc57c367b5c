"""Candidates measured in parallel processes on this machine; this process records them."""

import contextlib
import functools
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from seqto.freeing import give_back, give_back_large
from seqto.measuring.batch import Attempt, attempts
from seqto.measuring.parts import Parts
from seqto.measuring.peaks import at_once, share
from seqto.measuring.provenance import machine_of
from seqto.measuring.record import Assignment, Recorder, yardstick_of
from seqto.measuring.stopping import Rival
from seqto.measuring.subject import Subject, prepare_subject
from seqto.protocols import SeveralWorkers, TrialLog
from seqto.types import Candidate, Measurement, Model
from seqto.workspace import Workspace

GROUP, ALONE = 4, 8
"""At most how many candidates a process measures in a row, to run what they share once.

One alone returns each as soon as it is measured; others return all at the end, and lose them if
they are killed.
"""

_HELD_BYTES = 2**29
"""How much the candidates of a group may take together if none were smaller than the model."""

_KEPT_BYTES = 2**26
"""How many bytes of measured models are kept: those of the front are needed once more."""

_log = logging.getLogger(__name__)

_CRASHED = "its process ended; device.isolated=true finds the layers responsible"

_FORKS = "fork" in multiprocessing.get_all_start_methods()
"""A forked process inherits everything prepared here at no cost. It opens its own sessions, so no
thread of ONNX Runtime is lost in the fork."""


@dataclass(frozen=True)
class Running:
    """A group of assignments running in a process, and their open trials."""

    group: Sequence[Assignment]
    trials: Sequence[str]
    future: "Future[list[Attempt]]"


class Pool:
    """Measures and records candidates in `count` processes, or in this process if `count` is 1."""

    def __init__(self, parts: Parts, subject: Subject, log: TrialLog, count: int = 1) -> None:
        self._parts, self._subject, self._log = parts, subject, log
        self._count = count
        self._group = group_size(subject, GROUP if count > 1 else ALONE)
        self._processes: ProcessPoolExecutor | None = None
        self._known: dict[str, Measurement] = {}
        self.models: dict[str, Model] = {}
        """The first models that were measured, by their digests."""
        self._room = _KEPT_BYTES
        self._renewed = False
        self._yardstick = functools.cache(lambda study: yardstick_of(log, study))

    @property
    def batch(self) -> int:
        """How many candidates to launch at a time."""
        return self._group * self._count

    def launch(self, study: str | None, assignments: Sequence[Assignment]) -> Iterator[str]:
        """Yield the ids of these assignments' trials in order, each when it ends."""
        device, of = self._parts.device, self._yardstick(study)
        recorder = Recorder(self._log, study, device.name, machine_of(device), of)
        groups = groups_of(assignments, self._count, self._group)
        run = self._side_by_side if self._count > 1 else self._in_this_process
        try:
            with recorder.open_trials():
                yield from run(groups, recorder)
        except BaseException:
            self.close()
            raise
        if _FORKS and len(assignments) == 1 and not self._renewed:
            # The next processes inherit what this one learns until then, such as rounded weights.
            self._renewed = True
            self.close()

    def close(self) -> None:
        """Kill the processes, whatever they are doing."""
        pool, self._processes = self._processes, None
        if pool is not None:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            # Otherwise they stay as zombies, and their CPU time is not counted.
            for process in processes:
                process.join()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _in_this_process(
        self, groups: Sequence[Sequence[Assignment]], recorder: Recorder
    ) -> Iterator[str]:
        for group in groups:
            candidates = [each.candidate for each in group]
            contest = (self._rivals(), may_stop(group))
            made = attempts(self._parts, self._subject, candidates, self._known, *contest)
            for each in group:
                trial = recorder.start(each)
                yield self._recorded(recorder, trial, each, next(made))

    def _side_by_side(
        self, groups: Sequence[Sequence[Assignment]], recorder: Recorder
    ) -> Iterator[str]:
        waiting, running = deque(groups), deque[Running]()
        while waiting or running:
            while waiting and len(running) < self._count:
                group = waiting.popleft()
                trials = [recorder.start(each) for each in group]
                running.append(Running(group, trials, self._submit(group)))
            first = running.popleft()
            made = self._result(first)
            for trial, assignment, attempt in zip(first.trials, first.group, made, strict=True):
                yield self._recorded(recorder, trial, assignment, attempt)

    def _recorded(
        self, recorder: Recorder, trial: str, assignment: Assignment, made: Attempt
    ) -> str:
        recorder.end(trial, assignment, made)
        if made.measurement is not None:
            self._known[made.measurement.model_sha256] = made.measurement
        if made.model is not None:
            self._keep(made.model)
        return trial

    def _keep(self, model: Model) -> None:
        if self._room >= model.size and model.digest not in self.models:
            self.models[model.digest] = model
            self._room -= model.size

    def _submit(self, group: Sequence[Assignment]) -> "Future[list[Attempt]]":
        candidates = [each.candidate for each in group]
        # Not what was measured of them: each group would send more than the one before.
        contest = (self._rivals(), may_stop(group))
        given = (candidates, set(self._known), self._room, *contest)
        try:
            return self._started().submit(_measure, *given)
        except BrokenProcessPool:
            # Another group broke it, and that group's result reports the crash.
            self.close()
            return self._started().submit(_measure, *given)

    def _rivals(self) -> list[Rival]:
        """Return what is measured by now."""
        known = (each for each in self._known.values() if each.losses)
        return [Rival.of(each.metrics["size_bytes"], each.losses) for each in known]

    def _result(self, running: Running) -> list[Attempt]:
        """Return the group's attempts; after a crash, try each candidate in its own process."""
        try:
            return [self._with_figures(each) for each in running.future.result()]
        except BrokenProcessPool:
            self.close()
            return [self._alone(each) for each in running.group]

    def _with_figures(self, made: Attempt) -> Attempt:
        """Return an attempt with what is known of its model, if a process left that out."""
        measurement = made.measurement
        if measurement is None or measurement.metrics:
            return made
        return replace(made, measurement=self._known[measurement.model_sha256])

    def _alone(self, assignment: Assignment) -> Attempt:
        with Pool(self._parts, self._subject, self._log) as pool:
            try:
                return pool._submit([assignment]).result()[0]
            except BrokenProcessPool:
                # Looking for the layers responsible would crash this process as well.
                return Attempt(failure=f"Crash: {_CRASHED}")

    def _started(self) -> ProcessPoolExecutor:
        if self._processes is None:
            # Forked processes share what is left, until one of them changes it.
            give_back()
            context = multiprocessing.get_context("fork" if _FORKS else "spawn")
            # A forked process gets these as they are; another one prepares its own subject.
            given = (self._parts, self._subject if _FORKS else None, Workspace.default())
            self._processes = ProcessPoolExecutor(
                *(self._count, context),
                initializer=_begin,
                initargs=(os.getpid(), context.Semaphore(at_once(self._count)), *given),
            )
        return self._processes


class _Job:
    """What a worker's process measures candidates of; set in that process only."""

    parts: Parts
    subject: Subject


def workers_of(parts: Parts) -> int:
    """Return how many processes measure the candidates of these parts."""
    if not isinstance(parts.device, SeveralWorkers):
        return 1
    count = parts.device.workers or usable_cores()
    return count if _FORKS or _can_be_sent(parts) else 1


def _can_be_sent(parts: Parts) -> bool:
    """Tell whether other processes can be given these parts, where they do not inherit them."""
    try:
        pickle.dumps(parts)
    except Exception as error:  # Whatever an object's own code raises.
        _log.warning(
            "Candidates are measured one by one in this process: %s cannot be sent to others (%s).",
            *("one of the study's objects", error),
        )
        return False
    return True


def usable_cores() -> int:
    """Return how many cores this process may use."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _begin(
    parent: int,
    permits: AbstractContextManager[Any],
    parts: Parts,
    subject: Subject | None,
    workspace: Workspace,
) -> None:
    """Make a worker's process end with its parent, and ignore signals meant for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Looking for garbage would write to everything inherited, and so copy it.
    gc.freeze()
    give_back_large()
    share(permits)
    _Job.parts, _Job.subject = parts, subject or prepare_subject(parts, workspace)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _measure(
    candidates: Sequence[Candidate],
    known: Collection[str],
    room: int,
    rivals: Sequence[Rival],
    stoppable: Collection[Candidate],
) -> list[Attempt]:
    """Measure these candidates; models of a known digest are returned without figures.

    There is room for so many bytes of models: the others are not sent.
    """
    empty = {digest: Measurement({}, digest) for digest in known}
    found = []
    try:
        for each in attempts(_Job.parts, _Job.subject, candidates, empty, rivals, stoppable, True):
            size = each.model.size if each.model is not None else 0
            if size > room:
                found.append(replace(each, model=None))
            else:
                found.append(each)
                room -= size
        return found
    finally:
        give_back()


def may_stop(group: Sequence[Assignment]) -> set[Candidate]:
    """Return the candidates that are stopped once they cannot be on the front."""
    return {each.candidate for each in group if each.may_stop}


def group_size(subject: Subject, most: int) -> int:
    """Return how many candidates a process measures in a row: fewer if they are large."""
    return max(min(most, _HELD_BYTES // max(subject.model.size, 1)), 1)


def groups_of(
    assignments: Sequence[Assignment], count: int, most: int = GROUP
) -> list[Sequence[Assignment]]:
    """Return the assignments in groups, at least one for each process if there are enough."""
    size = min(most, max(1, -(-len(assignments) // count)))
    return [assignments[at : at + size] for at in range(0, len(assignments), size)]
