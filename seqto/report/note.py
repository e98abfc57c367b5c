"""The note that a study opens with in MLflow: its answer, its front, how it was made."""

import re
from collections.abc import Mapping, Sequence

from seqto.figures import Metrics, columns, float_metrics
from seqto.pareto.front import comparable
from seqto.pareto.lost import lost_in_words
from seqto.report.answer import with_basis
from seqto.report.certainty import certainty, hints
from seqto.report.info import study_title
from seqto.report.wording import spread_members
from seqto.types import COMMAND, REGISTERED, Front, StudyRecord, Trial

MOST_ROWS = 12

# MLflow's tables have neither borders nor alignment; all digits of its font are equally wide.
_GAP, _DIGIT = "&emsp;", "&numsp;"
_LINKS = {
    "report": "report",
    "candidates": "all candidates",
    "charts": "charts",
    "compare": "compare the front",
}


def study_note(
    record: StudyRecord, front: Front, pages: Mapping[str, str], running: bool = False
) -> str:
    """Return the note as Markdown, with links to those pages that there are.

    Of a running study it tells the front so far, and has no link to the report that is to come.

    Until a person unfolds the note, MLflow shows about five lines of it, and only in the first two
    can links be clicked: hence the links come first, then the answer.
    """
    wanted = [name for name in _LINKS if name in pages and not (running and name == "report")]
    links = [f"[{_LINKS[name]}]({pages[name]})" for name in wanted]
    answer = _so_far(record) + _answer(record, front) if running else _answer(record, front)
    parts = [" · ".join(links), answer, _table(record, front, pages), _rest(front)]
    registered = "" if running else _registered(record, front, pages)
    further = [registered, *_remarks(record, front), _command(record)]
    return "\n\n".join(part for part in [*parts, *further] if part)


def plain(text: str) -> str:
    """Return text with every sign escaped that Markdown or HTML would interpret."""
    flat = " ".join(text.split())
    return re.sub(r"[^\w ./,%-]|_", lambda found: f"&#{ord(found.group())};", flat)


def _answer(record: StudyRecord, front: Front) -> str:
    title = f"**{plain(study_title(record))}**"
    count = f"{len(front.members)} of {len(comparable(record.trials))} candidates on the front."
    missing = plain(lost_in_words(record.trials))
    sentences = [plain(with_basis(record, front)), count, f"{missing}." if missing else ""]
    return f"{title}: {' '.join(each for each in sentences if each)}"


def _so_far(record: StudyRecord) -> str:
    measured = len(comparable(record.trials))
    return f"Still running, {measured} measured; so far "


def _remarks(record: StudyRecord, front: Front) -> list[str]:
    """Say what more samples or other words might find; how sure the answer is stands beside it."""
    found = {**certainty(record, front), **hints(record, front)}
    found.pop("how sure", None)
    return [f"{label.capitalize()}: {plain(words)}." for label, words in found.items()]


def _table(record: StudyRecord, front: Front, pages: Mapping[str, str]) -> str:
    shown = spread_members(front, MOST_ROWS)
    mixed = any(trial.candidate.is_mixed for trial in shown)
    rows = [_row(trial, front, record.baseline, pages, mixed) for trial in shown]
    own = float_metrics(record.baseline)
    rows.append(["float", "", *_figures(own, record.baseline), ""])
    layers = "layers" if mixed else "in float32"
    titles = ["candidate", layers, *(each.title for each in columns()), ""]
    kept = [at for at in range(len(titles)) if any(row[at] for row in rows)]
    padded = _padded([[row[at] for at in kept] for row in rows])
    lines = [[titles[at] for at in kept], *padded]
    head, *body = (f"| {f'{_GAP} | '.join(line)} |" for line in lines)
    return "\n".join([head, "| --- " * len(kept) + "|", *body])


def _row(
    trial: Trial, front: Front, baseline: Metrics, pages: Mapping[str, str], mixed: bool
) -> list[str]:
    name = f"#{trial.index}"
    linked = f"[{name}]({pages[trial.id]})" if trial.id in pages else name
    aliases = ", ".join(front.aliases(trial))
    figures = _figures(trial.metrics, baseline)
    return [
        linked,
        trial.candidate.counted(mixed),
        *figures,
        f"**{aliases}**" * bool(aliases),
    ]


def _figures(metrics: Metrics, baseline: Metrics) -> list[str]:
    return [each.text(each.value(metrics, baseline)) for each in columns()]


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the rows with numbers aligned to the right, in all but the first and last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        [
            cell if at in (0, last) else _DIGIT * (widths[at] - len(cell)) + cell
            for at, cell in enumerate(row)
        ]
        for row in rows
    ]


def _rest(front: Front) -> str:
    hidden = len(front.members) - MOST_ROWS
    return f"and {hidden} more" if hidden > 0 else ""


def _registered(record: StudyRecord, front: Front, pages: Mapping[str, str]) -> str:
    """Return the registered model with its aliases; the front's other models are in their runs."""
    name = record.tags.get(REGISTERED, "")
    if not name:
        return ""
    page = pages.get("registered")
    linked = f"[{plain(name)}]({page})" if page else plain(name)
    aliases = ", ".join(f"{each.alias} is #{each.trial.index}" for each in front.recommended)
    return f"Registered as {linked}: {aliases}. The models of the front are in their runs."


def _command(record: StudyRecord) -> str:
    command = record.tags.get(COMMAND, "")
    if not command:
        return ""
    # Longer than any in the command, so that it ends where the command does.
    longest = max(map(len, re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"Made by\n\n{fence}bash\n{command}\n{fence}"
