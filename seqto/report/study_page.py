"""A study as one page: its answer, its front to look around in, and all that it rests on."""

import math
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.figures import (
    LOSS,
    Figure,
    Metrics,
    columns,
    costs,
    figure,
    float_metrics,
    in_bytes,
    in_digits,
    is_known,
    viewed,
)
from seqto.pareto.front import comparable
from seqto.pareto.lost import lost_in_words
from seqto.report.answer import answer
from seqto.report.certainty import remarks
from seqto.report.chart import FLOAT, FRONT, OTHER, Dot, Series, chart
from seqto.report.commands import (
    mlflow_lines,
    onnxruntime_lines,
    rebuild_command,
    study_command,
)
from seqto.report.info import (
    EXCLUDED,
    Axis,
    axis,
    front_info,
    ranked_by,
    sensitivity_info,
    study_title,
)
from seqto.report.page_links import NO_LINKS, PageLinks, model_file
from seqto.report.pages import MANY, picture, render
from seqto.report.wording import facts, in_words, interval
from seqto.types import (
    CODED_STEPS,
    SCHEMES,
    SHORT,
    Candidate,
    Front,
    StudyRecord,
    Trial,
    TrialState,
    family,
)
from seqto.workspace import written_whole

TEMPLATE = "report.html.jinja"
IN_FLOAT = "in float32"
SENSITIVITY, OBJECTIVES = "sensitivity.png", "objectives.png"

_SIGNS = string.digits + string.ascii_lowercase

Pictures = Mapping[str, Path]
"""The study's pictures by file name."""


@dataclass(frozen=True)
class SortedCell:
    """A cell of a table: what is read, and the number it is sorted by."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class CandidateRow:
    """A candidate in the table; `layers` names the entry of the page's data that has them."""

    index: int
    run: str
    layers: str
    precisions: str
    excluded: int
    aliases: tuple[str, ...]
    pareto: bool
    scheme: str
    state: str
    figures: tuple[SortedCell, ...]


@dataclass(frozen=True)
class Column:
    """A column of the table: what it shows of a candidate, and the metric that it is sorted by."""

    title: str
    by: Figure
    text: Callable[[Metrics, Metrics], str]
    """Of a candidate's metrics, given the float model's."""

    def cell(self, metrics: Metrics, baseline: Metrics) -> SortedCell:
        """Return a candidate's cell."""
        value = self.by.value(metrics, baseline)
        if not is_known(value):
            return SortedCell("")
        return SortedCell(self.text(metrics, baseline), float(value))


@dataclass(frozen=True)
class Choice:
    """A recommended candidate, and how to get it."""

    index: int
    aliases: tuple[str, ...]
    offer: str
    run: str
    """The address of its run in the tracker, where there is one."""
    file: str
    """The name of its model's file beside the page, where there is one."""
    by_mlflow: str
    by_onnxruntime: str
    rebuild: str


def write_study_page(
    path: Path,
    record: StudyRecord,
    front: Front,
    environment: Mapping[str, str],
    pictures: Pictures,
    exclusions: Mapping[str, Any] | None = None,
    links: PageLinks = NO_LINKS,
) -> None:
    """Write the page of a study, whole or not at all."""
    text = study_page(record, front, environment, pictures, exclusions, links)
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def study_page(
    record: StudyRecord,
    front: Front,
    environment: Mapping[str, str],
    pictures: Pictures,
    exclusions: Mapping[str, Any] | None = None,
    links: PageLinks = NO_LINKS,
) -> str:
    """Return the page of a study, from what its tracker holds and its pictures."""
    shown = _columns(record)
    data = page_data(record, front)
    return render(
        TEMPLATE,
        data,
        title=study_title(record),
        tags=record.tags,
        study=record.id,
        command=study_command(record),
        answer=answer(record, front),
        remarks=remarks(record, front),
        counts=_counts(record, front),
        hypervolume=in_digits(front.hypervolume),
        choices=choices(record, front, links),
        run=links.runs.get(record.id, ""),
        titles=[each.title for each in shown],
        layers_title=_layers_title(record),
        rows=[_row(trial, record, front, shown, links) for trial in _by_index(record)],
        float_figures=[
            each.cell(float_metrics(record.baseline), record.baseline) for each in shown
        ],
        layers=_layers(record),
        strip_of=_strip_of(data["strip"], record, front),
        score_in_words=_score_in_words(record),
        failures=[each for each in _by_index(record) if each.failure and not _is_stopped(each)],
        stopped=[each for each in _by_index(record) if _is_stopped(each)],
        schemes=_schemes(record),
        exclusions=(exclusions or {}).get("layers", []),
        environment=environment,
        sensitivity=picture(pictures[SENSITIVITY]) if SENSITIVITY in pictures else "",
        objectives=picture(pictures[OBJECTIVES]) if OBJECTIVES in pictures else "",
    )


def page_data(record: StudyRecord, front: Front) -> dict[str, Any]:
    """Return what the page's script draws from.

    Layer names are listed once; each candidate has a sign for every layer's precision.
    """
    names = in_graph_order(record)
    used = {kind for trial in record.trials for _, kind in trial.candidate.precisions}
    kinds = sorted(used, key=_fineness)
    return {
        "names": names,
        "precisions": kinds,
        "families": [family(each) for each in kinds],
        "layers": {
            str(trial.index): _signs(trial.candidate, names, kinds) for trial in record.trials
        },
        "strip": heat_strip(record, front, names),
        "chart": front_chart(record, front),
    }


def in_graph_order(record: StudyRecord) -> list[str]:
    """Return the layers as they stand in the graph; by name where older studies do not tell."""
    places = {row.layer.name: row.layer.position for row in record.scores}
    used = {name for trial in record.trials for name, _ in trial.candidate.precisions}

    def place(name: str) -> tuple[float, str]:
        at = places.get(name)
        return (math.inf if at is None else at, name)

    return sorted(used, key=place)


def heat_strip(record: StudyRecord, front: Front, names: Sequence[str]) -> dict[str, Any]:
    """Return the rows of the heat strip, the smallest candidate first, and what layers are."""
    members = {trial.id for trial in front.members}
    trials = _in_strip(record, front)
    rows = [
        {
            "candidate": str(trial.index),
            "aliases": list(front.aliases(trial)),
            "front": trial.id in members,
            "size": figure("size_ratio").text(
                figure("size_ratio").value(trial.metrics, record.baseline)
            ),
            "loss": figure(LOSS).text(trial.metrics.get(LOSS)),
        }
        for trial in trials
    ]
    known = {each["name"]: each for each in _layers(record)}
    facts = [
        {
            "op": known[name]["op_type"],
            "size": known[name]["size"],
            "rank": known[name]["rank"],
            "harm": known[name]["log_share"],
        }
        if name in known
        else None
        for name in names
    ]
    return {"rows": rows, "facts": facts}


def _in_strip(record: StudyRecord, front: Front) -> list[Trial]:
    """Return the candidates to show, by size: all of few, of many the front, or some of it."""
    trials = sorted(
        comparable(record.trials),
        key=lambda trial: (trial.metrics.get("size_bytes", math.inf), trial.index),
    )
    if len(trials) <= MANY:
        return trials
    members = {trial.id for trial in front.members}
    found = [trial for trial in trials if trial.id in members]
    if len(found) <= MANY:
        return found
    recommended = {each.trial.id for each in front.recommended}
    step = len(found) / (MANY - len(recommended))
    spread = {found[int(at * step)].id for at in range(MANY - len(recommended))}
    return [trial for trial in found if trial.id in recommended | spread]


def _strip_of(strip: Mapping[str, Any], record: StudyRecord, front: Front) -> str:
    """Say which candidates the strip has, if not all."""
    shown, members = len(strip["rows"]), len(front.members)
    if shown == len(comparable(record.trials)):
        return ""
    return " of the front" if shown == members else f" ({shown} of the {members} on the front)"


def _fineness(precision: str) -> tuple[int, float]:
    """Order precisions from the fewest bits to the most."""
    order = list(SHORT)
    kind = family(precision)
    place = order.index(kind) if kind in order else len(order)
    return (place, -CODED_STEPS.get(precision, 0.0))


def front_chart(record: StudyRecord, front: Front) -> dict[str, Any]:
    """Return all measured candidates, the front and the float model on their objectives."""
    info = front_info(record, front)
    across = [info.x, *_further_axes(record, info.x, info.y)]
    members = {trial.id for trial in front.members}
    dots = [
        _dot(trial, record, front, across, info.y, FRONT if trial.id in members else OTHER)
        for trial in comparable(record.trials)
    ]
    own = float_metrics(record.baseline)
    ground = Dot(
        title="float model",
        kind=FLOAT,
        x=tuple(each.baseline for each in across),
        y=info.y.baseline,
        facts=tuple(facts(viewed(), own, record.baseline).items()),
        label="float",
        beyond=tuple(float_beyond(each) for each in across),
    )
    named = Series(study_title(record), (*dots, ground))
    return chart([named], [each.title for each in across], info.y.title)


def float_beyond(on: Axis) -> str:
    """Return the label of a float model that is a mark at the edge of this axis."""
    return "" if on.baseline is None else f"float: {on.text(on.baseline)} \u2192"


def choices(record: StudyRecord, front: Front, links: PageLinks = NO_LINKS) -> list[Choice]:
    """Return each recommended candidate once."""
    metric = record.tags.get("seqto.metric", "top1")
    return [
        Choice(
            index=trial.index,
            aliases=front.aliases(trial),
            offer=in_words(trial.metrics, record.baseline, metric),
            run=links.runs.get(trial.id, ""),
            file=next(
                (links.files[each] for each in front.aliases(trial) if each in links.files), ""
            ),
            by_mlflow=mlflow_lines(record, trial, front.aliases(trial)),
            by_onnxruntime=onnxruntime_lines(record, trial, model_file(front.aliases(trial)[0])),
            rebuild=rebuild_command(record, trial),
        )
        for trial in {each.trial.id: each.trial for each in front.recommended}.values()
    ]


def _is_stopped(trial: Trial) -> bool:
    return trial.state is TrialState.STOPPED


def _by_index(record: StudyRecord) -> list[Trial]:
    return sorted(record.trials, key=lambda trial: trial.index)


def _counts(record: StudyRecord, front: Front) -> str:
    failed = sum(trial.state is TrialState.FAILED for trial in record.trials)
    members = f"{len(front.members)} of {len(comparable(record.trials))} candidates on the front"
    counted = f"{members}, {failed} failed" if failed else members
    missing = lost_in_words(record.trials)
    return f"{counted}. {missing}" if missing else counted


def _signs(candidate: Candidate, names: Sequence[str], kinds: Sequence[str]) -> str:
    """Return one sign per layer: there are more precisions than digits."""
    given = dict(candidate.precisions)
    return "".join(_SIGNS[kinds.index(given[name])] if name in given else "-" for name in names)


def _further_axes(record: StudyRecord, x: Axis, y: Axis) -> list[Axis]:
    """Return the other costs that the chart may show, if they are known of all candidates."""
    taken = (x.objective, y.objective)
    names = [each.name for each in costs() if each.name not in taken]
    trials = comparable(record.trials)
    return [
        axis(name, record.baseline)
        for name in names
        if all(is_known(trial.metrics.get(name)) for trial in trials)
    ]


def _dot(
    trial: Trial, record: StudyRecord, front: Front, across: Sequence[Axis], up: Axis, kind: str
) -> Dot:
    aliases = ", ".join(front.aliases(trial))
    scheme = {"scheme": trial.candidate.scheme} if trial.candidate.scheme else {}
    low, high = (trial.metrics.get(f"{up.objective}_{end}", math.nan) for end in ("low", "high"))
    return Dot(
        title=f"#{trial.index} {aliases}".strip(),
        kind=kind,
        x=tuple(_place(trial, each) for each in across),
        y=_place(trial, up),
        facts=tuple({**facts(viewed(), trial.metrics, record.baseline), **scheme}.items()),
        low=_known(low * up.factor),
        high=_known(high * up.factor),
        label=f"#{trial.index} {aliases}" if aliases else "",
        layers=str(trial.index),
    )


def _place(trial: Trial, where: Axis) -> float | None:
    if where.objective == EXCLUDED:
        return float(len(trial.candidate.excluded))
    return _known(trial.metrics.get(where.objective, math.nan) * where.factor)


def _known(value: float | None) -> float | None:
    return float(value) if is_known(value) else None


def _layers_title(record: StudyRecord) -> str:
    """Return what the candidates' layers are counted by."""
    return "layers" if any(each.candidate.is_mixed for each in record.trials) else IN_FLOAT


def _counted(candidate: Candidate, title: str) -> str:
    """Say how many layers are left in float32, or with more precisions how many are in each."""
    if title == IN_FLOAT:
        return candidate.counted(by_precision=False)
    counts = Counter(family(precision) for _, precision in candidate.precisions)
    return ", ".join(f"{counts[kind]} {kind}" for kind in SHORT if counts[kind])


def _columns(record: StudyRecord) -> list[Column]:
    """Return the columns that at least one candidate has a number for."""
    found = [column for each in columns(details=True) for column in _columns_of(each)]
    return [
        each
        for each in found
        if any(is_known(trial.metrics.get(each.by.name)) for trial in record.trials)
    ]


def _columns_of(shown: Figure) -> list[Column]:
    """Return the column of a figure, and that of its 95 % interval if it has one."""
    own = Column(shown.title, shown, lambda *metrics: shown.text(shown.value(*metrics)))
    if not shown.has_interval:
        return [own]
    high = figure(f"{shown.name}_high")
    return [own, Column("95 % interval", high, lambda metrics, _: interval(shown, metrics))]


def _row(
    trial: Trial, record: StudyRecord, front: Front, shown: Sequence[Column], links: PageLinks
) -> CandidateRow:
    state = "" if trial.state is TrialState.COMPLETE else trial.state.value.lower()
    if trial.duplicate_of is not None:
        state = f"same model as #{trial.duplicate_of}"
    return CandidateRow(
        index=trial.index,
        run=links.runs.get(trial.id, ""),
        layers=str(trial.index),
        precisions=_counted(trial.candidate, _layers_title(record)),
        excluded=len(trial.candidate.excluded),
        aliases=front.aliases(trial),
        pareto=any(member.id == trial.id for member in front.members),
        scheme=trial.candidate.scheme,
        state=state,
        figures=tuple(each.cell(trial.metrics, record.baseline) for each in shown),
    )


def _layers(record: StudyRecord) -> list[dict[str, Any]]:
    """Return the layers' ranks, scores and the length of their bars."""
    info = sensitivity_info(record)
    logs = _log_shares(info.scores)
    return [
        {
            "log_share": logs[rank - 1],
            "rank": rank,
            "name": score.layer.name,
            "op_type": score.layer.op_type,
            "size": in_bytes(score.layer.weight_bytes),
            "bytes": score.layer.weight_bytes,
            "score": score.score if math.isfinite(score.score) else None,
            "text": in_digits(score.score),
            "share": max(0.0, min(1.0, share)) if math.isfinite(share) else 0.0,
        }
        for rank, (score, share) in enumerate(zip(record.scores, info.shares, strict=True), 1)
    ]


def _log_shares(scores: Sequence[float]) -> list[float]:
    """Scale scores to 0..1 by their logarithms over three powers of ten: most are tiny."""
    most = max((each for each in scores if math.isfinite(each)), default=0.0)

    def share(score: float) -> float:
        known = most > 0 and math.isfinite(score) and score > 0
        return round(max(0.0, 1 + math.log10(score / most) / 3), 3) if known else 0.0

    return [share(each) for each in scores]


def _score_in_words(record: StudyRecord) -> str:
    """Say what the layers' score is, where their sensitivity is known to tell."""
    ranked = ranked_by(record.scores)
    if ranked not in ("harm", "harm per byte saved"):
        return ""
    unit = ", per byte that this saves" if ranked != "harm" else ""
    return (
        "The score is the divergence of the output from the float model's when only this "
        f"layer is quantized{unit}, as a share of the largest."
    )


def _schemes(record: StudyRecord) -> list[dict[str, Any]]:
    """Return the full quantizations that were compared first, as texts."""

    def number(row: Mapping[str, Any], name: str) -> float | None:
        value = row.get(name)
        return float(value) if isinstance(value, int | float) else None

    return [
        {
            "scheme": row["scheme"],
            "ratio": figure("size_ratio").text(number(row, "size_ratio")),
            "divergence": in_digits(number(row, "divergence")),
            "exact": in_digits(number(row, "exact_divergence")),
            "latency": figure("latency_ms").text(number(row, "latency_ms")),
            "base": bool(row["base"]),
        }
        for row in record.tables.get(SCHEMES, ())
    ]
