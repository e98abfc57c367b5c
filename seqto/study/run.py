"""A study from its beginning to its end: opened, explored, concluded."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from seqto.errors import StudyError
from seqto.interrupts import put_off
from seqto.measuring.record import Assignment
from seqto.phases import say
from seqto.protocols import Exclusive, StudyLog, Tracker
from seqto.study.conclude import Publish, conclude
from seqto.study.explore import OPENING, STEPS_TO_OPEN, Launch, Watch, explore
from seqto.study.plan import Study
from seqto.study.refreshing import Refreshed
from seqto.types import Front, StudyPlan, StudyRecord, TrialState

Check = Callable[[], None]
"""Raises StudyError once another process took over the study."""


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
    show: Publish | None = None,
) -> Outcome:
    """Open or resume the study, measure what is missing, conclude.

    `overrides` are the command line's words that gave this config, if there was one. `show` writes
    what those see who watch the study in the tracker before it ends.
    """
    plan, resume = study.plan(config, overrides), study.settings.resume
    with (
        _alone(study.tracker, plan.key) as check,
        _opened(study.tracker, plan, resume, check) as run,
    ):
        seen = Refreshed(study, run, watch, show) if show else watch
        measured = explore(study, run, _while_held(launch, check), seen)
        check()
        record, front = conclude(study, run, publish)
        check()
        whole = not study.incomplete(record)
        study.tracker.close_study(run, TrialState.COMPLETE if whole else TrialState.FAILED)
    return Outcome(record, front, measured)


def _alone(tracker: Tracker, key: str) -> AbstractContextManager[Check]:
    """Hold the study: two processes would take each other's running trials for leftovers."""
    if isinstance(tracker, Exclusive):
        return tracker.alone(key)
    return contextlib.nullcontext(lambda: None)


def _while_held(launch: Launch, check: Check) -> Launch:
    """Return a launch that stops once another process took over."""

    def launch_held(study: str, assignments: Sequence[Assignment]) -> Iterator[str]:
        check()
        for trial in launch(study, assignments):
            check()
            yield trial

    return launch_held


@contextlib.contextmanager
def _opened(tracker: StudyLog, plan: StudyPlan, resume: bool, check: Check) -> Iterator[str]:
    """Open a study, and mark it as failed or killed if the block ends early."""
    run = None
    say(OPENING, 1, STEPS_TO_OPEN)
    try:
        # An interrupt in between would leave an open study whose id nobody knows.
        with put_off():
            run = tracker.open_study(plan, resume)
        say(OPENING, 2, STEPS_TO_OPEN)
        yield run
    except BaseException as error:
        if run is not None and _is_held(check):
            failed = isinstance(error, Exception)
            tracker.close_study(run, TrialState.FAILED if failed else TrialState.KILLED)
        raise


def _is_held(check: Check) -> bool:
    """Tell whether the study is still this process's to close."""
    try:
        check()
    except StudyError:
        return False
    return True
