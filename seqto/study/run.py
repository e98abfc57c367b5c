"""A study from its beginning to its end: opened, explored, concluded."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import filelock

from seqto.errors import StudyError
from seqto.interrupts import put_off
from seqto.protocols import StudyLog
from seqto.study.conclude import Publish, conclude
from seqto.study.explore import Launch, Watch, explore
from seqto.study.plan import Study
from seqto.types import Front, StudyPlan, StudyRecord, TrialState
from seqto.workspace import Workspace


@dataclass(frozen=True)
class Outcome:
    """A finished study: its record, its front, and how many trials this run measured."""

    record: StudyRecord
    front: Front
    measured: int


def run_study(
    study: Study,
    launch: Launch,
    watch: Watch,
    publish: Publish,
    config: str,
    overrides: Sequence[str] | None = None,
) -> Outcome:
    """Open or resume the study, measure what is missing, conclude.

    `overrides` are the command line's words that gave this config, if there was one.
    """
    plan, resume = study.plan(config, overrides), study.settings.resume
    with _alone(study.workspace, plan.key), _opened(study.tracker, plan, resume) as run:
        measured = explore(study, run, launch, watch)
        record, front = conclude(study, run, publish)
        study.tracker.close_study(run, TrialState.COMPLETE)
    return Outcome(record, front, measured)


@contextlib.contextmanager
def _alone(workspace: Workspace, key: str) -> Iterator[None]:
    """Hold the study's lock: two processes would take each other's running trials for leftovers."""
    path = workspace.lock(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise StudyError(
            "another process or thread is running this very study. Wait for it to end, or change "
            "the model, data or options to make it another study."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _opened(tracker: StudyLog, plan: StudyPlan, resume: bool) -> Iterator[str]:
    """Open a study, and mark it as failed or killed if the block ends early."""
    run = None
    try:
        # An interrupt in between would leave an open study whose id nobody knows.
        with put_off():
            run = tracker.open_study(plan, resume)
        yield run
    except BaseException as error:
        if run is not None:
            failed = isinstance(error, Exception)
            tracker.close_study(run, TrialState.FAILED if failed else TrialState.KILLED)
        raise
