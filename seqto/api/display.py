"""What a study called from Python shows while it runs."""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from rich.console import Console

from seqto.report.progress import StudyProgress, can_show_bars, ended
from seqto.report.wording import task_in_words
from seqto.study.plan import Study
from seqto.types import Trial


class Quiet:
    """Shows nothing."""

    def start(self) -> None:
        """Show nothing from now on."""

    def aside(self) -> AbstractContextManager[Any]:
        """Show nothing of one's own within the block."""
        return nullcontext()

    def introduce(self, study: Study) -> None:
        """Say nothing."""

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Say nothing."""

    def advance(self, trial: Trial, done: int, total: int) -> None:
        """Show nothing."""


class Bar:
    """A progress bar on the terminal's error stream, or in a notebook."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._console = Console(stderr=True)
        self._progress = StudyProgress(self._console)
        self.say = self._progress.say

    def start(self) -> None:
        """Show the bar from now on."""
        self._stack.enter_context(self._progress)

    def aside(self) -> AbstractContextManager[Any]:
        """Hide the bar within the block."""
        return self._progress.aside()

    def introduce(self, study: Study) -> None:
        """Say what the outputs are taken for, and what else matters."""
        subject = study.subject
        taken = task_in_words(subject.task.name, subject.metric.name, subject.guess)
        for line in (taken, *subject.remarks):
            self._console.print(line, style="dim", highlight=False, markup=False)

    def advance(self, trial: Trial, done: int, total: int) -> None:
        """Show a trial that ended: on the bar, or as a line in a notebook without widgets."""
        self._progress.advance(trial, done, total)
        if self._console.is_jupyter and not can_show_bars(self._console):
            print(f"{done} of {total}: {ended(trial)}", flush=True)
