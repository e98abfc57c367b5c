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
    """How a study ended: what the tracker holds, the front, and how many trials were run now."""

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

    `overrides` are the words of the command line that make this config, if there is one.
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
            "another process is running this very study. Wait for it to end, or change "
            "the model, data or options to make it another study."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _opened(tracker: StudyLog, plan: StudyPlan, resume: bool) -> Iterator[str]:
    """See to it that a study that ends early does not look as if it still ran, or had finished."""
    run = None
    try:
        # Interrupted any earlier, a study would be open that nobody knows of.
        with put_off():
            run = tracker.open_study(plan, resume)
        yield run
    except BaseException as error:
        if run is not None:
            failed = isinstance(error, Exception)
            tracker.close_study(run, TrialState.FAILED if failed else TrialState.KILLED)
        raise
