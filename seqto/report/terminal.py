"""What a person sees in the terminal when a study ends."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from seqto.figures import Figure, columns, figure, float_metrics
from seqto.pareto.front import comparable
from seqto.report.certainty import remarks
from seqto.report.info import study_title
from seqto.report.wording import in_words, spread_members
from seqto.types import SCHEMES, Candidate, Front, StudyRecord, Trial

MOST_ROWS = 12
ALIAS_STYLE = "bold green"


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
    for label, words in remarks(record, front).items():
        console.print(f"{label}: {words}", style="dim", highlight=False, markup=False)


def print_schemes(console: Console, record: StudyRecord) -> None:
    """Print the full quantizations that were compared first, if any were."""
    rows = record.tables.get(SCHEMES, ())
    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("full quantization")
    share, latency = figure("size_ratio"), figure("latency_ms")
    for title in (share.title, "divergence", "exact", latency.title):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        figures = {name: float(value) for name, value in row.items() if _is_number(value)}
        table.add_row(
            escape(str(row["scheme"])),
            share.text(figures[share.name]),
            f"{figures['divergence']:.4f}",
            f"{figures['exact_divergence']:.4f}",
            latency.text(figures[latency.name]),
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


def _heading(record: StudyRecord, front: Front) -> Text:
    count = f"{len(front.members)} of {len(comparable(record.trials))} candidates on the front"
    return Text.assemble((study_title(record), "bold"), f"  {count}")


def _recommended(record: StudyRecord, front: Front) -> Table:
    """Return one line per recommended trial; where it wraps, its words stay in their column."""
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
    """Return the front's table, with as many of the dispensable columns as fit the terminal."""
    # Rich would cut the aliases first, which are what a person goes on with.
    ratio, *others = [each for each in columns() if each.dispensable]
    # F1 goes before accuracy: the more common a figure is, the further left it stands.
    spare = [ratio, *reversed(others)]
    fewer = [(1, spare[:count]) for count in range(len(spare) + 1)]
    for gap, left_out in [(2, []), *fewer]:
        table = _front_table(record, front, shown, gap, left_out)
        table.width = console.measure(table, options=console.options.update(width=1000)).maximum
        if table.width <= console.width:
            break
    return table


def _front_table(
    record: StudyRecord, front: Front, shown: Sequence[Trial], gap: int, left_out: Sequence[Figure]
) -> Table:
    def text(each: Figure, metrics: Mapping[str, float]) -> str:
        return each.text(each.value(metrics, record.baseline))

    kept = [
        each
        for each in _with_objectives(columns(), front)
        if each not in left_out and any(text(each, trial.metrics) for trial in front.members)
    ]
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    mixed = any(each.candidate.is_mixed for each in shown)
    names = ("candidate", "layers" if mixed else "excluded")
    for title in (*names, *(escape(each.title) for each in kept)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in shown:
        figures = [text(each, trial.metrics) for each in kept]
        aliases = Text(", ".join(front.aliases(trial)), ALIAS_STYLE)
        table.add_row(f"#{trial.index}", trial.candidate.counted(mixed), *figures, aliases)
    own = float_metrics(record.baseline)
    names_of_all = [name for name, _ in shown[0].candidate.precisions]
    whole = Candidate.excluding(names_of_all, names_of_all)
    figures = [text(each, own) for each in kept]
    table.add_row("float", whole.counted(mixed), *figures, style="dim")
    return table


def _with_objectives(shown: Sequence[Figure], front: Front) -> list[Figure]:
    """Return these figures, and behind them the objectives that are not among them."""
    names = [each.name for each in shown]
    return [*shown, *(figure(name) for name in front.objectives if name not in names)]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _artefact(row: Mapping[str, object]) -> bool:
    """Return whether the device's kernels do more harm than the file does."""
    found, exact = row["divergence"], row["exact_divergence"]
    return _is_number(found) and _is_number(exact) and found > 1.5 * exact + 1e-3
