"""What a person sees in the terminal while a study runs and when it ends."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeGuard

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from seqto.figures import (
    Metrics,
    in_bytes,
    in_digits,
    in_ms,
    in_percent,
    size_ratio,
)
from seqto.pareto.front import comparable
from seqto.report.info import study_title
from seqto.report.wording import in_words, losses_alike, spread_members
from seqto.types import (
    SCHEMES,
    Candidate,
    Front,
    StudyRecord,
    Trial,
    TrialState,
)

MOST_ROWS = 12
ALIAS_STYLE = "bold green"
# Shown in columns of their own, or too close to one that is.
KNOWN = {"accuracy_loss", "size_bytes", "size_ratio", "accuracy", "latency_ms"}

OF_FLOAT, ACCURACY = "of float", "accuracy"


def print_front(console: Console, record: StudyRecord, front: Front) -> None:
    """Print the front as a table, and under it what each recommended candidate offers."""
    shown = spread_members(front, MOST_ROWS)
    console.print(_heading(record, front), highlight=False)
    console.print(_fitting_table(console, record, front, shown), crop=False)
    if len(shown) < len(front.members):
        console.print(f"and {len(front.members) - len(shown)} more", style="dim", highlight=False)
    if front.recommended:
        console.print()
        console.print(_recommended(record, front))
    if alike := losses_alike(front):
        console.print(
            f"too few samples to tell the losses of {alike} apart: their 95 % intervals overlap",
            style="dim",
            highlight=False,
        )


def print_schemes(console: Console, record: StudyRecord) -> None:
    """Print the full quantizations that were compared first, if any were."""
    rows = record.tables.get(SCHEMES, ())
    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("full quantization")
    for title in ("of float", "divergence", "exact", "latency"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        figures = {name: float(value) for name, value in row.items() if _is_number(value)}
        table.add_row(
            escape(str(row["scheme"])),
            in_percent(figures["size_ratio"], 1),
            f"{figures['divergence']:.4f}",
            f"{figures['exact_divergence']:.4f}",
            in_ms(figures["latency_ms"]),
            Text("base", ALIAS_STYLE) if row["base"] else "",
        )
    console.print(table)
    if any(_artefact(row) for row in rows):
        console.print(
            "where the divergence is above the exact one of the same file, this CPU's integer "
            "kernels saturate: an artefact of the CPU, not of a layer",
            style="dim",
            highlight=False,
        )
    console.print()


def can_show_bars(console: Console) -> bool:
    """Tell whether a bar can be drawn: in a terminal, and in notebooks that have widgets."""
    widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or widgets


class StudyProgress:
    """A progress bar of a study; silent where the console can show none.

    A total of None stands for a search that does not know how many candidates it will try.
    """

    def __init__(self, console: Console, total: int | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _TimeLeftColumn(),
            console=console,
            transient=True,
            disable=not can_show_bars(console),
            # The default of 30 s holds no two candidates of a slow device.
            speed_estimate_period=600,
        )
        self._enabled = can_show_bars(console)
        self._task = self._progress.add_task("ranking layers", total=total)

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

    def say(self, what: str) -> None:
        """Show what is being done now."""
        self._progress.update(self._task, description=what)

    def advance(self, trial: Trial, done: int, total: int | None) -> None:
        """Show a trial that ended as the latest of `done`, out of `total` known by now."""
        # Not through update(): it forgets the speed whenever a search raises its total.
        self._progress.tasks[0].total = total
        self._progress.update(self._task, description=_ended(trial), completed=done, refresh=True)


class _TimeLeftColumn(TimeRemainingColumn):
    """The time left, in a word; nothing as long as it cannot be told."""

    def render(self, task: Task) -> Text:
        if task.total is None or task.time_remaining is None:
            return Text("")
        return Text.assemble(super().render(task), (" left", "dim"))


@dataclass(frozen=True)
class _Column:
    title: str
    show: Callable[[Metrics], str]
    """Returns nothing where the metrics lack the number."""


def _heading(record: StudyRecord, front: Front) -> Text:
    count = f"{len(front.members)} of {len(comparable(record.trials))} candidates on the front"
    return Text.assemble((study_title(record), "bold"), f"  {count}")


def _recommended(record: StudyRecord, front: Front) -> Table:
    """Return a line a recommended trial, whose words stay in their column where it wraps."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    for trial in {each.trial.id: each.trial for each in front.recommended}.values():
        offer = in_words(trial.metrics, record.baseline, record.tags.get("seqto.metric", "top1"))
        scheme = f" ({trial.candidate.scheme})" if trial.candidate.scheme else ""
        words = f"#{trial.index}: {offer}{scheme}"
        lines.add_row(Text(", ".join(front.aliases(trial)), ALIAS_STYLE), words)
    return lines


def _fitting_table(
    console: Console, record: StudyRecord, front: Front, shown: Sequence[Trial]
) -> Table:
    """Return the front's table; without columns that the words below it repeat, where too wide."""
    # Rich would cut the aliases first, which are what a person goes on with.
    for gap, left_out in ((2, ()), (1, ()), (1, (OF_FLOAT,)), (1, (OF_FLOAT, ACCURACY))):
        table = _front_table(record, front, shown, gap, left_out)
        table.width = console.measure(table, options=console.options.update(width=1000)).maximum
        if table.width <= console.width:
            break
    return table


def _front_table(
    record: StudyRecord, front: Front, shown: Sequence[Trial], gap: int, left_out: Sequence[str]
) -> Table:
    columns = [
        column
        for column in _columns(front, record.baseline)
        if column.title not in left_out
        and any(column.show(trial.metrics) for trial in front.members)
    ]
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    mixed = any(each.candidate.is_mixed for each in shown)
    names = ("candidate", "layers" if mixed else "excluded")
    for title in (*names, *(column.title for column in columns)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in shown:
        figures = [column.show(trial.metrics) for column in columns]
        aliases = Text(", ".join(front.aliases(trial)), ALIAS_STYLE)
        table.add_row(f"#{trial.index}", trial.candidate.counted(mixed), *figures, aliases)
    own = _float_metrics(record.baseline)
    names_of_all = [name for name, _ in shown[0].candidate.precisions]
    whole = Candidate.excluding(names_of_all, names_of_all)
    figures = [column.show(own) for column in columns]
    table.add_row("float", whole.counted(mixed), *figures, style="dim")
    return table


def _columns(front: Front, baseline: Metrics) -> list[_Column]:
    def other(name: str) -> _Column:
        return _Column(escape(name.replace("_", " ")), lambda metrics: in_digits(metrics.get(name)))

    return [
        _Column("size", lambda metrics: in_bytes(metrics.get("size_bytes"))),
        _Column(OF_FLOAT, lambda metrics: in_percent(size_ratio(metrics, baseline), 1)),
        _Column("loss", lambda metrics: in_percent(metrics.get("accuracy_loss"), 2)),
        _Column(ACCURACY, lambda metrics: in_percent(metrics.get("accuracy"), 1)),
        _Column("latency", lambda metrics: in_ms(metrics.get("latency_ms"))),
        *(other(name) for name in front.objectives if name not in KNOWN),
    ]


def _float_metrics(baseline: Metrics) -> Metrics:
    """Return the float model's metrics as if it were a candidate."""
    return {"size_ratio": 1.0, "accuracy_loss": 0.0, **baseline}


def _ended(trial: Trial) -> str:
    """Say in a few words how a trial ended."""
    if trial.state != TrialState.COMPLETE:
        return f"#{trial.index} [red]{trial.state.value.lower()}[/red]"
    parts = [
        ("loss", in_percent(trial.metrics.get("accuracy_loss"), 2)),
        ("size", in_bytes(trial.metrics.get("size_bytes"))),
    ]
    return f"#{trial.index} " + ", ".join(f"{name} {text}" for name, text in parts if text)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _artefact(row: Mapping[str, object]) -> bool:
    """Return whether the device's kernels do more harm than the file does."""
    found, exact = row["divergence"], row["exact_divergence"]
    return _is_number(found) and _is_number(exact) and found > 1.5 * exact + 1e-3
