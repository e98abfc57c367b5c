"""Studies that differ in their device only, side by side: fronts are not the same everywhere.

Read from the studies' report.json, so that studies of several days or machines can be compared:
`python -m seqto.report.comparison FOLDER REPORT...`.
"""

import html
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.workspace import written_whole

PAGE, PICTURE = "comparison.html", "comparison.png"

_SAME = ("seqto.model", "seqto.quantization", "seqto.search", "seqto.dataset", "seqto.metric")
"""What studies have in common to be compared."""


@dataclass(frozen=True)
class Cell:
    """A candidate on one device; `failure` says why it has no figures there."""

    loss: float | None
    latency_ms: float | None
    pareto: bool
    failure: str = ""


@dataclass(frozen=True)
class Row:
    """A candidate on all devices that measured it, by the device's name."""

    key: str
    excluded: int
    size_bytes: float | None
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class ComparisonInfo:
    """The candidates of studies that differ in their device only.

    `alone` counts, by device, the candidates that no other device measured, which are left out.
    """

    title: str
    devices: Mapping[str, str]
    layers: int
    rows: tuple[Row, ...]
    alone: Mapping[str, int]


def comparisons(reports: Sequence[Mapping[str, Any]]) -> list[ComparisonInfo]:
    """Return a comparison for each group of reports that differ in their device only."""
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for report in reports:
        tags = report["study"]["tags"]
        same = tuple(tags.get(name, "") for name in _SAME)
        groups.setdefault(same, {})[tags["seqto.device"]] = report
    return [
        _info(" · ".join(filter(None, same)), found)
        for same, found in groups.items()
        if len(found) > 1
    ]


def _info(title: str, reports: Mapping[str, Mapping[str, Any]]) -> ComparisonInfo:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for device, report in reports.items():
        for candidate in report["candidates"]:
            if candidate["state"] in ("COMPLETE", "FAILED"):
                found.setdefault(candidate["key"], {})[device] = candidate
    shared = {key: each for key, each in found.items() if len(each) > 1}
    alone = {device: sum(list(each) == [device] for each in found.values()) for device in reports}
    rows = sorted((_row(key, each) for key, each in shared.items()), key=_by_size)
    first = next(iter(reports.values()))
    runtimes = {
        device: str(report["environment"].get("device.runtime", ""))
        for device, report in reports.items()
    }
    return ComparisonInfo(title, runtimes, len(first["sensitivity"]), tuple(rows), alone)


def _row(key: str, candidates: Mapping[str, Mapping[str, Any]]) -> Row:
    sizes = [each["metrics"].get("size_bytes") for each in candidates.values()]
    return Row(
        key=key,
        excluded=next(iter(candidates.values()))["excluded_count"],
        size_bytes=next((size for size in sizes if size is not None), None),
        cells={device: _cell(each) for device, each in candidates.items()},
    )


def _cell(candidate: Mapping[str, Any]) -> Cell:
    metrics = candidate["metrics"]
    return Cell(
        metrics.get("accuracy_loss"),
        metrics.get("latency_ms"),
        bool(candidate["pareto"]),
        candidate["failure"] or "",
    )


def _by_size(row: Row) -> tuple[float, str]:
    return (row.size_bytes or 0.0, row.key)


def page(infos: Sequence[ComparisonInfo], picture: str = PICTURE) -> str:
    """Return the comparisons as a page without scripts."""
    tables = "\n".join(_table(info) for info in infos)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>seqto: devices compared</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; color: #222 }}
table {{ border-collapse: collapse; margin: 1em 0 }}
th, td {{ padding: .25em .8em; text-align: right; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left }}
.front {{ font-weight: 600; color: #0072B2 }} .failed {{ color: #D55E00 }}
img {{ max-width: 100% }}
</style></head><body>
<h1>Devices compared</h1>
<p>The same candidates on each device, the smallest first. In blue: on that device's front.</p>
<img src="{html.escape(picture)}" alt="Loss and latency of the same candidates by device">
{tables}
</body></html>
"""


def _table(info: ComparisonInfo) -> str:
    heads = "".join(
        f'<th colspan="2">{html.escape(name)}<br><small>{html.escape(runtime)}</small></th>'
        for name, runtime in info.devices.items()
    )
    columns = "<th>loss</th><th>latency</th>" * len(info.devices)
    body = "\n".join(_line(row, info) for row in info.rows)
    left_out = [f"{count} on {name} only" for name, count in info.alone.items() if count]
    note = f"<p>Not in the table: {html.escape(', '.join(left_out))}.</p>" if left_out else ""
    return f"""<h2>{html.escape(info.title)}</h2>
<table><tr><th rowspan="2">candidate</th><th rowspan="2">in float32</th><th rowspan="2">size</th>
{heads}</tr><tr>{columns}</tr>
{body}</table>{note}"""


def _line(row: Row, info: ComparisonInfo) -> str:
    size = "" if row.size_bytes is None else f"{row.size_bytes / 1e3:.1f} KB"
    cells = "".join(_cells(row.cells.get(device)) for device in info.devices)
    name = html.escape(row.key[:8])
    return f"<tr><td>{name}</td><td>{row.excluded} of {info.layers}</td><td>{size}</td>{cells}</tr>"


def _cells(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td><td></td>"
    if cell.failure:
        return f'<td class="failed" colspan="2" title="{html.escape(cell.failure)}">failed</td>'
    kind = ' class="front"' if cell.pareto else ""
    loss = "" if cell.loss is None else f"{cell.loss:.2%}"
    latency = "" if cell.latency_ms is None else f"{cell.latency_ms:.2f} ms"
    return f"<td{kind}>{loss}</td><td{kind}>{latency}</td>"


def draw(infos: Sequence[ComparisonInfo], path: Path) -> None:
    """Draw loss and latency against size, a line for each device, a row for each comparison."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from seqto.report.plots import COLOURS, DPI, MARKERS, STYLE

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2 * len(infos)), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(infos), 2, squeeze=False)
        for row, info in zip(axes, infos, strict=True):
            for axis, label in zip(row, ("accuracy loss (%)", "latency (ms)"), strict=True):
                for at, device in enumerate(info.devices):
                    line = _points(info, device, percent=label.startswith("accuracy"))
                    style = {"color": COLOURS[at % 6], "marker": MARKERS[at % 6]}
                    axis.plot(*line, label=device, **style)
                axis.set(xlabel="size (KB)", ylabel=label, title=info.title)
                axis.set_ylim(bottom=0)
                axis.legend()
        with written_whole(path) as temporary:
            figure.savefig(temporary, format="png")


def _points(info: ComparisonInfo, device: str, *, percent: bool) -> tuple[list[float], list[float]]:
    xs, ys = [], []
    for row in info.rows:
        cell = row.cells.get(device)
        value = None if cell is None else (cell.loss if percent else cell.latency_ms)
        if value is not None and row.size_bytes is not None:
            xs.append(row.size_bytes / 1e3)
            ys.append(value * 100 if percent else value)
    return xs, ys


def write_comparison(folder: Path, reports: Sequence[Path]) -> Path | None:
    """Write the page and its picture into the folder; None where there is nothing to compare."""
    infos = comparisons([json.loads(path.read_text(encoding="utf-8")) for path in reports])
    if not infos:
        return None
    draw(infos, folder / PICTURE)
    with written_whole(folder / PAGE) as temporary:
        temporary.write_text(page(infos), encoding="utf-8")
    return folder / PAGE


if __name__ == "__main__":
    print(write_comparison(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]]))
