"""Studies side by side as one page: their fronts over each other, and what they share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto.figures import (
    LOSS,
    Metrics,
    figure,
    float_metrics,
    in_bytes,
    in_percent,
    is_known,
    told,
)
from seqto.report.chart import FLOAT, FRONT, Dot, Series, chart
from seqto.report.comparison import (
    LIMITS,
    SIZE,
    ComparisonInfo,
    Report,
    SharedCandidate,
    Smallest,
    compare,
    compared,
)
from seqto.report.info import Axis, axis
from seqto.report.pages import render
from seqto.report.wording import facts
from seqto.types import FLOAT32
from seqto.workspace import written_whole

PAGE, TEMPLATE = "comparison.html", "comparison.html.jinja"
SHOWN_LAYERS = 8


def write_comparison(
    folder: Path, reports: Sequence[Report], pages: Sequence[str] = ()
) -> tuple[ComparisonInfo, Path]:
    """Write the page of these studies into the folder; `pages` are theirs, as seen from there."""
    info = compare(reports)
    with written_whole(folder / PAGE) as temporary:
        temporary.write_text(comparison_page(info, reports, pages), encoding="utf-8")
    return info, folder / PAGE


def comparison_page(
    info: ComparisonInfo, reports: Sequence[Report], pages: Sequence[str] = ()
) -> str:
    """Return the page; the reports are those that the comparison was made from."""
    one_size = all(len(row.sizes) <= 1 for row in info.rows)
    shown = [each for each in compared() if not (one_size and each.name == SIZE)]
    return render(
        TEMPLATE,
        {"chart": fronts_chart(info, reports)},
        title=" · ".join(filter(None, ("Studies compared", info.title))),
        info=info,
        limits=[(limit, in_percent(limit, 0)) for limit in LIMITS],
        percent=in_percent,
        smallest=smallest_in_words,
        latency=figure("latency_ms").text,
        timed=any(is_known(each.float_ms) for each in info.studies),
        at_most=in_percent(LIMITS[0], 0),
        pages=dict(zip((each.label for each in info.studies), pages, strict=False)),
        one_size=one_size,
        size=_size,
        titles=[each.title for each in shown],
        figures=lambda cell: [each.text(cell.metrics.get(each.name)) for each in shown],
        left_out=[f"{count} of {label}" for label, count in info.alone.items() if count],
    )


def fronts_chart(info: ComparisonInfo, reports: Sequence[Report]) -> dict[str, Any]:
    """Return the fronts and the float models of all studies, sizes as shares of their own."""
    across = [axis(each.name, {}) for each in told() if each.name != LOSS]
    up = axis(LOSS, {})
    series = [
        Series(study.label, tuple(_dots(report, across, up)))
        for study, report in zip(info.studies, reports, strict=True)
    ]
    return chart(series, [each.title for each in across], up.title)


def smallest_in_words(found: Smallest | None) -> str:
    """Say what share of the float model the smallest candidate is, and how large that is."""
    if found is None:
        return "none"
    size = in_bytes(found.size_bytes)
    return f"{in_percent(found.size_ratio, 1)}{f', {size}' if size else ''}"


def _dots(report: Report, across: Sequence[Axis], up: Axis) -> list[Dot]:
    def dot(title: str, kind: str, metrics: Metrics, precisions: Mapping[str, str]) -> Dot:
        left = {FLOAT32: text} if (text := _left(precisions)) else {}
        return Dot(
            title=title,
            kind=kind,
            x=tuple(_place(each, metrics, baseline) for each in across),
            y=_place(up, metrics, baseline),
            facts=tuple({**facts(told(), metrics, baseline), **left}.items()),
            low=_scaled(up, metrics.get(f"{LOSS}_low")),
            high=_scaled(up, metrics.get(f"{LOSS}_high")),
            beyond=tuple(_beyond(each, metrics, baseline) for each in across),
        )

    baseline = report["baseline"]
    members = [
        dot(
            f"#{each['index']} {', '.join(each['aliases'])}".strip(),
            FRONT,
            each["metrics"],
            each["precisions"],
        )
        for each in report["candidates"]
        if each["pareto"]
    ]
    return [*members, dot("float model", FLOAT, float_metrics(baseline), {})]


def _beyond(on: Axis, metrics: Metrics, baseline: Metrics) -> str:
    """Return the label of a float model at the edge of this axis."""
    place = _place(on, metrics, baseline)
    return "" if place is None else f"float: {on.text(place)} \u2192"


def _place(on: Axis, metrics: Metrics, baseline: Metrics) -> float | None:
    return _scaled(on, figure(on.objective).value(metrics, baseline))


def _scaled(on: Axis, value: float | None) -> float | None:
    return on.factor * value if is_known(value) else None


def _left(precisions: Mapping[str, str]) -> str:
    """Say which layers are left in float32."""
    if not precisions:
        return ""
    left = [name for name, precision in precisions.items() if precision == FLOAT32]
    if not left:
        return f"none of {len(precisions)} layers"
    more = f" and {len(left) - SHOWN_LAYERS} more" if len(left) > SHOWN_LAYERS else ""
    return f"{len(left)} of {len(precisions)}: {', '.join(left[:SHOWN_LAYERS])}{more}"


def _size(row: SharedCandidate) -> str:
    return in_bytes(min(row.sizes, default=None))
