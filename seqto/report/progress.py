"""What a person sees while a study runs: phases with counts, and candidates as they end."""

import contextlib
import importlib.util
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from seqto.errors import StudyError
from seqto.figures import LOSS, figure
from seqto.pareto.front import non_dominated
from seqto.types import Trial, TrialState

MEASURING = "measuring"
"""The phase in which candidates are measured in full, as the study says it."""

OBJECTIVES = (LOSS, "size_bytes")

_SHOWN = ("size_bytes", "size_ratio", LOSS, "latency_ms")
"""The figures of a candidate that ended."""

_STILL = 30.0
"""After so many seconds without a line, a log says how far a phase is."""

_STEPS = 3
"""Phases of so few are told without their count in a log: there each has a line anyway."""

_BELOW = 6
"""Lines of the screen that are left for what is not the table."""


def can_show_bars(console: Console) -> bool:
    """Tell whether a bar can be drawn: in a terminal, and in notebooks that have widgets."""
    widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or widgets


class Ended:
    """The candidates that ended so far, and the front among them."""

    def __init__(self) -> None:
        self.objectives: Sequence[str] = OBJECTIVES
        self.trials: list[Trial] = []
        self.front: frozenset[str] = frozenset()
        """The ids of those that no other beats so far."""

    def add(self, trial: Trial) -> None:
        """Take in a candidate that ended, once."""
        if all(each.id != trial.id for each in self.trials):
            self.trials.append(trial)
            self.front = frozenset(each.id for each in self._front())

    def _front(self) -> list[Trial]:
        try:
            return non_dominated(self.trials, self.objectives)
        except StudyError:
            # None is complete yet, or an objective cannot be measured: the study's end tells.
            return []

    def shown(self, most: int) -> list[Trial]:
        """Return at most so many, as they ended; those of the front are kept longest."""
        front = [each for each in self.trials if each.id in self.front]
        others = [each for each in self.trials if each.id not in self.front]
        room = max(0, most - len(front))
        latest = others[max(0, len(others) - room) :]
        kept = {each.id for each in (*front, *latest)}
        return [each for each in self.trials if each.id in kept][-most:]


class StudyProgress:
    """A progress bar of a study under the candidates that ended; silent without a terminal.

    Each phase has a count and a time of its own. The total is None where it is not known, as where
    a search does not know how many candidates it will try.
    """

    def __init__(self, console: Console, total: int | None = None) -> None:
        self._enabled = can_show_bars(console)
        self.ended = Ended()
        self._progress = _Bars(console, self.ended, disable=not self._enabled)
        self._phase = "starting"
        self._task = self._progress.add_task(self._phase, total=total)

    def __enter__(self) -> "StudyProgress":
        if self._enabled:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._enabled:
            self._progress.stop()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar within the block, for a part that shows one of its own."""
        if self._enabled:
            self._progress.stop()
        try:
            yield
        finally:
            if self._enabled:
                self._progress.start()

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Show what is being done now, how much of it is done, and of how much."""
        if what != self._phase:
            self._phase = what
            self._progress.reset(self._task, description=what, total=total)
        # Not through update(): it forgets the speed whenever a search raises its total.
        self._progress.tasks[0].total = total
        self._progress.update(self._task, completed=done)

    def advance(self, trial: Trial, done: int, total: int | None) -> None:
        """Show a candidate that ended as the latest of `done`, out of `total` known by now."""
        self.ended.add(trial)
        self.say(MEASURING, done, total)
        self._progress.refresh()


class StepLines:
    """A line for each phase and each candidate that ended, where no bar can be drawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.ended = Ended()
        self._phase, self._done = "", 0
        self._began = self._spoke = self._last = time.monotonic()

    def __enter__(self) -> "StepLines":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """Lines are in nobody's way."""
        return contextlib.nullcontext()

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Print how long the phase before took when another one begins; and how far a long one is.

        A log that stands still looks like a program that hangs.
        """
        now = time.monotonic()
        if what != self._phase:
            self._end()
            self._phase, self._began, self._last = what, now, now
        elif now - self._spoke > _STILL and total:
            self._print(f"{what} {done}/{total}, {now - self._began:.0f} s so far")
        self._done = done

    def advance(self, trial: Trial, done: int, total: int | None) -> None:
        """Print a candidate that ended, whether it is on the front so far, and what it took."""
        self.ended.add(trial)
        self.say(MEASURING, done, total)
        front = ", on the front so far" if trial.id in self.ended.front else ""
        now = time.monotonic()
        took, self._last = now - self._last, now
        self._print(f"{MEASURING} {done}/{total or '?'}: {ended(trial)}{front} ({took:.1f} s)")

    def _end(self) -> None:
        # Each candidate had a line of its own.
        if self._phase not in ("", MEASURING):
            count = f" ({self._done})" if self._done > _STEPS else ""
            self._print(f"{self._phase}{count}: {time.monotonic() - self._began:.1f} s")

    def _print(self, line: str) -> None:
        self._console.print(line, style="dim", highlight=False, markup=False)
        # A pipe would keep it back until there is more.
        self._console.file.flush()
        self._spoke = time.monotonic()


def ended(trial: Trial) -> str:
    """Say in a few words how a candidate ended."""
    if trial.state != TrialState.COMPLETE:
        return f"#{trial.index} {trial.state.value.lower()}"
    shown = [figure(LOSS), figure("size_bytes")]
    parts = [(each.title, each.text(trial.metrics.get(each.name))) for each in shown]
    return f"#{trial.index} " + ", ".join(f"{title} {text}" for title, text in parts if text)


class _Bars(Progress):
    """The table of candidates that ended, and under it the bar."""

    def __init__(self, console: Console, ended: Ended, disable: bool) -> None:
        self._ended = ended
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            _CountColumn(),
            TimeElapsedColumn(),
            _TimeLeftColumn(),
            console=console,
            transient=True,
            disable=disable,
            # On a slow device, no two candidates end within the default of 30 s.
            speed_estimate_period=600,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn at each refresh."""
        if self._ended.trials:
            most = max(3, self.console.height - _BELOW)
            yield table_of(self._ended, most)
        yield self.make_tasks_table(self.tasks)


def table_of(found: Ended, most: int) -> Table:
    """Return the candidates that ended, with a mark at those of the front so far."""
    shown = found.shown(most)
    figures = [
        each
        for each in map(figure, _SHOWN)
        if any(each.name in trial.metrics for trial in found.trials)
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("candidate", *(each.title for each in figures)):
        table.add_column(title, justify="right", no_wrap=True)
    hidden = len(found.trials) - len(shown)
    table.add_column(f"({hidden} more)" if hidden else "", no_wrap=True)
    for trial in shown:
        table.add_row(
            f"#{trial.index}",
            *(each.text(trial.metrics.get(each.name)) for each in figures),
            _state(trial, found),
        )
    return table


def _state(trial: Trial, found: Ended) -> Text:
    if trial.state != TrialState.COMPLETE:
        style = "dim" if trial.state is TrialState.STOPPED else "red"
        return Text(trial.state.value.lower(), style)
    return Text("on the front so far", "green") if trial.id in found.front else Text("")


class _CountColumn(ProgressColumn):
    """How much is done, where that is counted."""

    def __init__(self) -> None:
        super().__init__()
        self._count = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.total is None and not task.completed:
            return Text("")
        return self._count.render(task)


class _TimeLeftColumn(TimeRemainingColumn):
    """The time left, in a word; nothing as long as it cannot be told."""

    def render(self, task: Task) -> Text:
        if task.total is None or task.time_remaining is None:
            return Text("")
        return Text.assemble(super().render(task), (" left", "dim"))
