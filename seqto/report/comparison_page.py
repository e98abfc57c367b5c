"""Studies side by side as one page: their fronts over each other, and what they share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto.figures import in_bytes, in_ms, in_percent, is_known, size_ratio
from seqto.report.chart import FLOAT, FRONT, Dot, Series, chart
from seqto.report.comparison import LIMITS, Cell, ComparisonInfo, Report, Row, Smallest, compare
from seqto.report.pages import render
from seqto.types import FLOAT32
from seqto.workspace import written_whole

PAGE, TEMPLATE = "comparison.html", "comparison.html.jinja"
SHOWN_LAYERS = 8


def write_comparison(folder: Path, reports: Sequence[Report]) -> tuple[ComparisonInfo, Path]:
    """Write the page of these studies into the folder."""
    info = compare(reports)
    with written_whole(folder / PAGE) as temporary:
        temporary.write_text(comparison_page(info, reports), encoding="utf-8")
    return info, folder / PAGE


def comparison_page(info: ComparisonInfo, reports: Sequence[Report]) -> str:
    """Return the page; the reports are those that the comparison was made from."""
    one_size = all(len({c.size_bytes for c in _measured(row)}) <= 1 for row in info.rows)
    return render(
        TEMPLATE,
        {"chart": fronts_chart(info, reports)},
        title=" · ".join(filter(None, ("Studies compared", info.title))),
        info=info,
        limits=[(limit, in_percent(limit, 0)) for limit in LIMITS],
        percent=in_percent,
        smallest=smallest_in_words,
        one_size=one_size,
        size=_size,
        figures=lambda cell: _figures(cell, one_size),
        left_out=[f"{count} of {label}" for label, count in info.alone.items() if count],
    )


def fronts_chart(info: ComparisonInfo, reports: Sequence[Report]) -> dict[str, Any]:
    """Return the fronts and the float models of all studies, in units of each float model."""
    series = [
        Series(study.label, tuple(_dots(report)))
        for study, report in zip(info.studies, reports, strict=True)
    ]
    return chart(series, ["size (% of the float model)", "latency (ms)"], "accuracy loss (%)")


def smallest_in_words(found: Smallest | None) -> str:
    """Say what share of the float model the smallest candidate is, and how large that is."""
    if found is None:
        return "none"
    size = in_bytes(found.size_bytes)
    return f"{in_percent(found.size_ratio, 1)}{f', {size}' if size else ''}"


def _dots(report: Report) -> list[Dot]:
    baseline = report["baseline"]
    members = [
        _dot(f"#{each['index']} {', '.join(each['aliases'])}".strip(), FRONT, each, baseline)
        for each in report["candidates"]
        if each["pareto"]
    ]
    own = {"metrics": {"accuracy_loss": 0.0, "size_ratio": 1.0, **baseline}, "precisions": {}}
    return [*members, _dot("float model", FLOAT, own, baseline)]


def _dot(title: str, kind: str, candidate: Mapping[str, Any], baseline: Mapping[str, Any]) -> Dot:
    metrics = candidate["metrics"]
    ratio, loss = size_ratio(metrics, baseline), metrics.get("accuracy_loss")
    low, high = (metrics.get(f"accuracy_loss_{end}") for end in ("low", "high"))
    within = f" (95 %: {100 * low:.2f} to {in_percent(high, 2)})" if low is not None else ""
    facts = {
        "loss": f"{in_percent(loss, 2)}{within}",
        "size": f"{in_bytes(metrics.get('size_bytes'))} ({in_percent(ratio, 1)} of float)",
        "latency": in_ms(metrics.get("latency_ms")),
        FLOAT32: _left(candidate["precisions"]),
    }
    return Dot(
        title=title,
        kind=kind,
        x=(_percent(ratio), metrics.get("latency_ms")),
        y=_percent(loss),
        facts=tuple((name, text) for name, text in facts.items() if text),
        low=_percent(low),
        high=_percent(high),
    )


def _percent(fraction: float | None) -> float | None:
    return 100 * fraction if is_known(fraction) else None


def _left(precisions: Mapping[str, str]) -> str:
    """Say which layers are left in float32."""
    if not precisions:
        return ""
    left = [name for name, precision in precisions.items() if precision == FLOAT32]
    if not left:
        return f"none of {len(precisions)} layers"
    more = f" and {len(left) - SHOWN_LAYERS} more" if len(left) > SHOWN_LAYERS else ""
    return f"{len(left)} of {len(precisions)}: {', '.join(left[:SHOWN_LAYERS])}{more}"


def _measured(row: Row) -> list[Cell]:
    return [cell for cell in row.cells.values() if cell.size_bytes is not None]


def _size(row: Row) -> str:
    return in_bytes(next((cell.size_bytes for cell in _measured(row)), None))


def _figures(cell: Cell, one_size: bool) -> list[str]:
    size = [] if one_size else [in_bytes(cell.size_bytes)]
    return [*size, in_percent(cell.loss, 2), in_ms(cell.latency_ms)]
