"""The pictures of a study, drawn from plain info by matplotlib without its global state.

The colours are Okabe and Ito's, which people with colour vision deficiencies tell apart.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path as MatplotlibPath
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from seqto.report.info import (
    FrontInfo,
    Mark,
    ObjectivesInfo,
    Point,
    SensitivityInfo,
    is_far,
    shown_range,
)
from seqto.workspace import written_whole

DPI = 150
POINTS_PER_INCH = 72
INK, GREY, PALE = "#222222", "#767676", "#d4d4d4"
BLUE, VERMILLION = "#0072B2", "#D55E00"
COLOURS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", VERMILLION)
MARKERS = "oDsv^P"

NAME_WIDTH = 40
BAR_INCHES = 4.2

# Complete enough that a user's matplotlibrc cannot spoil the pictures.
STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
    "savefig.transparent": False,
    "axes.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "text.color": INK,
    "text.usetex": False,
    # A layer's name may hold a dollar sign.
    "text.parse_math": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def draw_sensitivity(info: SensitivityInfo, path: Path) -> None:
    """Draw the scores of the layers that matter, the most hurt first; the rest in a sentence."""
    shown = info.matter
    with matplotlib.rc_context(STYLE):
        figure = _figure(BAR_INCHES, max(1.0, 0.2 * shown))
        axes = figure.subplots()
        _draw_layers(axes, info, shortened(info.layers[:shown], NAME_WIDTH))
        axes.set_ylim(max(shown, 1) - 0.4, -0.6)
        # Bars say it better than dots where only logarithms can be seen.
        lift = 0.0
        if info.details and not info.logarithmic:
            _draw_key(axes, info)
            lift = 20.0
        _head(axes, f"{info.title}: {info.ranked}, by layer", _sensitivity_subtitle(info), lift)
        _save(figure, path)


def draw_objectives(info: ObjectivesInfo, path: Path) -> None:
    """Draw the objectives of the candidates at their places, the recommended marked."""
    with matplotlib.rc_context(STYLE):
        width = min(9.0, 5.8 + len(set(info.places)) / 50)
        figure = _figure(width, 3.5)
        axes = figure.subplots()
        low, high = min(info.places), max(info.places)
        margin = 0.02 * (high - low) or 0.5
        axes.set(xlim=(low - margin, high + margin), ylim=(-4, 104))
        axes.set(xlabel=info.across)
        axes.set_ylabel("from the best candidate (0 %) to the worst (100 %)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if info.names:
            # Not too many to be read.
            step = math.ceil(len(info.names) / 20)
            axes.set_xticks(info.places[::step], info.names[::step])
        axes.grid(axis="y")
        _draw_lines(axes, info)
        lift = _draw_marks(axes, info.marks)
        medians = "; the lines are medians" if _several(info) else ""
        subtitle = f"Objectives of {_count(info.places)}, lower is better{medians}"
        _head(axes, info.title, subtitle, lift)
        _save(figure, path)


def draw_front(info: FrontInfo, path: Path) -> None:
    """Draw all trials, the front as a stepped line, the recommended and the float model."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(6.2, 3.9)
        axes = figure.subplots()
        info, limits = _fitted(info)
        axes.set(xlim=limits[0], ylim=limits[1], xlabel=info.x.title, ylabel=info.y.title)
        axes.grid(True)
        beyond = _draw_trials(axes, info, limits)
        _draw_steps(axes, info.steps, limits)
        _draw_members(axes, info)
        _place_labels(axes, info)
        _head(axes, info.title, _front_subtitle(info, beyond), lift=0)
        _save(figure, path)


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Cut long names where the fewest of them become the same, as near the middle as can be."""
    heads = sorted(range(width), key=lambda head: abs(head - width // 2))
    ways = ([_cut(name, width, head) for name in names] for head in heads)
    return max(ways, key=lambda way: len(set(way)))


def _cut(name: str, width: int, head: int) -> str:
    if len(name) <= width:
        return name
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


def _count(candidates: Sequence[object]) -> str:
    return "1 candidate" if len(candidates) == 1 else f"{len(candidates)} candidates"


def _figure(width: float, height: float) -> Figure:
    """Return a figure whose axes fill these inches; labels extend it when it is saved."""
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", bbox_inches="tight", pad_inches=0.18)


def _head(axes: Axes, title: str, subtitle: str, lift: float) -> None:
    """Write the title and the subtitle above the axes, `lift` points higher than usual."""
    _above(axes, 0, lift + 24, title, fontsize=12, fontweight="bold")
    _above(axes, 0, lift + 9, subtitle, color=GREY)


def _above(axes: Axes, x: float, points: float, text: str, **style: Any) -> Annotation:
    """Write a line above the axes, from the share `x` of their width."""
    return axes.annotate(
        text,
        xy=(x, 1),
        xycoords="axes fraction",
        xytext=(0, points),
        textcoords="offset points",
        va="bottom",
        **style,
    )


def _draw_layers(axes: Axes, info: SensitivityInfo, names: list[str]) -> None:
    """Draw a bar a layer for its score, and a dot for each normalised detail."""
    places = range(len(names))
    if info.logarithmic:
        known = [each for each in info.scores[: len(names)] if each > 0]
        axes.set_xscale("log")
        low, values = 10 ** math.floor(math.log10(min(known)) - 1e-9), info.scores
        axes.set(xlim=(low, max(known)), xlabel=f"{info.ranked} (logarithmic)")
        # Mathematical text is off, which the usual labels of such an axis are.
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        low, values = 0.0, info.shares
        axes.set(
            xlim=(0, 1), xticks=[0, 0.5, 1], xlabel=f"{info.ranked}, as a share of the largest"
        )
        _draw_details(axes, info, len(names))
    widths = [max(0.0, values[place] - low) for place in places]
    # Pale where dots lie on the bars.
    colour = BLUE if info.logarithmic or not info.details else PALE
    axes.barh(places, widths, left=low, height=0.72, color=colour)
    for place in places:
        _beside(axes, 1.03, place, f"{info.scores[place]:.3g}")
    axes.set(yticks=places)
    axes.set_yticklabels(names, fontsize=8)
    axes.tick_params(axis="y", length=0, pad=7)
    axes.spines.left.set_visible(False)
    axes.grid(axis="x")


def _beside(axes: Axes, x: float, place: int, text: str) -> None:
    """Write a number beside a bar, at the share `x` of the axes' width."""
    where = axes.get_yaxis_transform()
    axes.text(x, place, text, color=GREY, fontsize=7, va="center_baseline", transform=where)


def _draw_details(axes: Axes, info: SensitivityInfo, count: int) -> None:
    for detail, colour, marker in zip(info.details, COLOURS, MARKERS, strict=False):
        style: dict[str, Any] = {"color": colour, "marker": marker, "zorder": 3, "lw": 0}
        axes.scatter(detail.values[:count], range(count), s=17, clip_on=False, **style)


def _draw_key(axes: Axes, info: SensitivityInfo) -> None:
    """Name the bars and the dots in one line above the first column."""
    before = _above(axes, 0, 6, f"▬ {info.ranked}", color=GREY)
    signs = dict(zip(MARKERS, "●◆■▼▲✚", strict=True))
    for detail, colour, marker in zip(info.details, COLOURS, MARKERS, strict=False):
        before = axes.annotate(
            f"{signs[marker]} {detail.name}",
            xy=(1, 0),
            xycoords=before,
            xytext=(12, 0),
            textcoords="offset points",
            color=colour,
            va="bottom",
        )


def _sensitivity_subtitle(info: SensitivityInfo) -> str:
    if not info.layers:
        return "No layer was scored"
    shown = info.matter
    which = f"The {shown} of {len(info.layers)} layers that matter most"
    rest = _rest_in_words(info, shown)
    return f"All {shown} layers, the most hurt first" if shown == len(info.layers) else which + rest


def _rest_in_words(info: SensitivityInfo, shown: int) -> str:
    """Say how much harm the layers do that are not shown, where that adds up."""
    total = sum(info.harms)
    if not info.harms or not math.isfinite(total) or total <= 0:
        return ""
    share = 100 * sum(info.harms[shown:]) / total
    return f"; the other {len(info.layers) - shown} do {share:.2g} % of all harm"


def _several(info: ObjectivesInfo) -> bool:
    """Tell whether any two candidates are at the same place."""
    return len(info.places) > len(set(info.places))


def _draw_lines(axes: Axes, info: ObjectivesInfo) -> None:
    several = _several(info)
    ends = _spread([line.trend[-1][1] for line in info.lines], gap=13.0)
    for line, end, colour in zip(info.lines, ends, COLOURS, strict=False):
        if several:
            axes.scatter(info.places, line.percents, s=9, color=colour, alpha=0.3, lw=0)
        for xs, ys in _measured_runs(line.trend, counts=not info.names):
            many = len(line.trend) > 70
            axes.plot(xs, ys, color=colour, lw=1.8, marker="o", ms=0 if many and len(xs) > 1 else 4)
        label = axes.annotate(
            line.label,
            xy=(1, end),
            xycoords=axes.get_yaxis_transform(),
            xytext=(10, 0),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
            va="bottom",
        )
        axes.annotate(
            f"{line.best} to {line.worst}" if line.best != line.worst else line.best,
            xy=(0, 0),
            xycoords=label,
            color=GREY,
            fontsize=8,
            va="top",
        )


def _measured_runs(
    trend: Sequence[tuple[int, float]], counts: bool
) -> list[tuple[list[int], list[float]]]:
    """Return the stretches in which every number of layers was measured.

    A line over what was not measured would tell what nobody knows; and candidates side by side
    have nothing in between.
    """
    stretches: list[list[tuple[int, float]]] = []
    for place, percent in trend:
        joined = bool(stretches) and counts and place == stretches[-1][-1][0] + 1
        if not joined:
            stretches.append([])
        stretches[-1].append((place, percent))
    return [([x for x, _ in each], [y for _, y in each]) for each in stretches]


def _spread(values: Sequence[float], gap: float) -> list[float]:
    """Move values apart until neighbours differ by `gap`, in their order and within 0..100."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    placed = [values[at] for at in order]
    for at in range(1, len(placed)):
        placed[at] = max(placed[at], placed[at - 1] + gap)
    for at in range(len(placed) - 1, -1, -1):
        ceiling = 97.0 if at == len(placed) - 1 else placed[at + 1] - gap
        placed[at] = min(placed[at], ceiling)
    return [placed[order.index(at)] for at in range(len(values))]


def _draw_marks(axes: Axes, marks: Iterable[Mark]) -> float:
    """Draw a vertical line a recommended candidate, and return how high their labels reach."""
    labels: list[Annotation] = []
    highest = 0
    for mark in sorted(marks, key=lambda mark: mark.place):
        axes.axvline(mark.place, color=INK, lw=0.9, ls=(0, (4, 3)), zorder=1)
        for percent, colour in zip(mark.percents, COLOURS, strict=False):
            axes.scatter(
                mark.place, percent, s=44, color=colour, edgecolor="white", lw=1.2, zorder=4
            )
        label = axes.annotate(
            mark.label,
            xy=(mark.place, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha=_inwards(axes, mark.place),
            va="bottom",
        )
        highest = max(highest, _raise_clear(label, labels))
        labels.append(label)
    return 14.0 * (highest + 1) if labels else 0.0


def _inwards(axes: Axes, x: float) -> Literal["left", "center", "right"]:
    """Return how to align a label so that it does not leave the axes sideways."""
    left, right = axes.get_xlim()
    share = (x - left) / (right - left)
    return "left" if share < 0.1 else "right" if share > 0.9 else "center"


def _raise_clear(label: Annotation, others: Sequence[Annotation]) -> int:
    """Raise a label row by row until it overlaps no other, and return its row."""
    for row in range(len(others) + 1):
        label.set_position((0, 3 + 14 * row))
        box = _extent(label)
        if not any(box.overlaps(_extent(other)) for other in others):
            return row
    return len(others)


def _extent(label: Annotation) -> Bbox:
    """Return the pixels that a label's text covers, with some air; without its leader."""
    # Not its root, which matplotlib before 3.10 does not tell; there are no figures within figures.
    figure = label.get_figure()
    assert figure is not None and isinstance(figure.canvas, FigureCanvasAgg)
    renderer = figure.canvas.get_renderer()
    label.update_positions(renderer)
    return Text.get_window_extent(label, renderer).padded(4)


def _fitted(
    info: FrontInfo,
) -> tuple[FrontInfo, tuple[tuple[float, float], tuple[float, float]]]:
    """Return what to draw, and the axes' limits: a float model far to the right is at the edge."""
    if info.baseline is None or not is_far(info.baseline.x, [each.x for each in info.members]):
        return info, _limits(info)
    limits = _limits(replace(info, baseline=None))
    # A label of two lines fits below the candidates that lose next to nothing.
    low = min(limits[1][0], info.baseline.y - 0.16 * (limits[1][1] - limits[1][0]))
    label = f"{info.baseline.label}: {info.x.text(info.baseline.x)} \u2192"
    mark = replace(info.baseline, x=limits[0][1], label=label)
    return replace(info, baseline=mark), (limits[0], (low, limits[1][1]))


def _limits(info: FrontInfo) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return axes that fit the front and the float model, and what trials lie not far beyond.

    A few hopeless trials would otherwise squeeze the front into a corner.
    """
    key = [*info.members, *([info.baseline] if info.baseline else [])]
    return (
        shown_range([point.x for point in key], [point.x for point in info.trials], head=0.08),
        shown_range([point.y for point in key], [point.y for point in info.trials], head=0.15),
    )


def _draw_trials(
    axes: Axes, info: FrontInfo, limits: tuple[tuple[float, float], tuple[float, float]]
) -> int:
    """Draw all trials, those beyond the axes on their edge, and return how many are beyond."""
    xs, ys = ([point.x for point in info.trials], [point.y for point in info.trials])
    shown = np.column_stack([np.clip(xs, *limits[0]), np.clip(ys, *limits[1])])
    beyond = np.any(shown != np.column_stack([xs, ys]), axis=1)
    near, far = shown[~beyond].T, shown[beyond].T
    axes.scatter(near[0], near[1], s=16, color="#b0b0b0", lw=0, zorder=2)
    style: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "lw": 0.9}
    axes.scatter(far[0], far[1], s=18, zorder=2, clip_on=False, **style)
    return int(beyond.sum())


def _draw_steps(
    axes: Axes, steps: Sequence[Point], limits: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """Draw the front as steps over the area that it dominates."""
    right, top = limits[0][1], limits[1][1]
    xs = [steps[0].x, *(point.x for point in steps), right]
    ys = [top, *(point.y for point in steps), steps[-1].y]
    axes.fill_between(xs, ys, top, step="post", color=BLUE, alpha=0.06, lw=0)
    axes.step(xs[1:-1], ys[1:-1], where="post", color=BLUE, lw=1.4, zorder=3)


def _draw_members(axes: Axes, info: FrontInfo) -> None:
    def dots(points: Sequence[Point], **style: Any) -> None:
        xs, ys = [point.x for point in points], [point.y for point in points]
        axes.scatter(xs, ys, edgecolor="white", clip_on=False, **style)

    dots(info.members, s=34, color=BLUE, lw=0.7, zorder=4)
    dots(info.recommended, s=95, color=VERMILLION, lw=1.1, zorder=5)
    if info.baseline:
        dots([info.baseline], s=70, color=INK, marker="D", lw=1.1, zorder=5)


def _place_labels(axes: Axes, info: FrontInfo) -> None:
    """Label the float model and the recommended trials where there is room."""
    placed: list[_Placed] = []
    crowd = _crowd(axes, info)
    if info.baseline:
        placed.append(_place(axes, info.baseline, info.baseline.label, INK, placed, crowd))
    for point in info.recommended:
        text = f"{point.label}\n{_figures(info, point)}"
        placed.append(_place(axes, point, text, VERMILLION, placed, crowd))


def _figures(info: FrontInfo, point: Point) -> str:
    parts = [
        f"{axis.text(value)} {axis.label.removeprefix('accuracy ')}"
        for axis, value in ((info.x, point.x), (info.y, point.y))
    ]
    return ", ".join(parts)


@dataclass(frozen=True)
class _Placed:
    """What a label covers, in pixels: its text and the line to its point."""

    box: Bbox
    leader: MatplotlibPath

    def clashes(self, other: "_Placed") -> bool:
        return (
            self.box.overlaps(other.box)
            or self.leader.intersects_bbox(other.box)
            or other.leader.intersects_bbox(self.box)
            or self.leader.intersects_path(other.leader)
        )


def _place(
    axes: Axes, point: Point, text: str, colour: str, placed: Sequence[_Placed], crowd: np.ndarray
) -> _Placed:
    """Write a label beside its point where it hides least."""
    label = axes.annotate(
        text,
        xy=(point.x, point.y),
        xytext=(0, 0),
        textcoords="offset points",
        color=colour,
        fontsize=8.5,
        linespacing=1.25,
        zorder=6,
        arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkA": 1, "shrinkB": 5},
    )
    best = min(_offsets(), key=lambda offset: _cost(axes, label, offset, placed, crowd))
    return _put(axes, label, best)


def _put(axes: Axes, label: Annotation, offset: tuple[float, float]) -> _Placed:
    x, y = offset
    label.set_position(offset)
    label.set_horizontalalignment("left" if x > 0 else "right" if x < 0 else "center")
    label.set_verticalalignment("bottom" if y > 0 else "top" if y < 0 else "center")
    start = axes.transData.transform(label.xy)
    end = start + np.array(offset) * DPI / POINTS_PER_INCH
    return _Placed(_extent(label), MatplotlibPath([start, end]))


def _offsets() -> list[tuple[float, float]]:
    """Return where a label may sit, in points from its own, nearest first."""
    sides = [side for side in product((1.0, 0.0, -1.0), repeat=2) if any(side)]
    # Straight up, a wide label leaves the axes near their edge; far aside, it meets its neighbours.
    sides += product((0.3, -0.3), (1.0, -1.0))
    return [(radius * x, radius * y) for radius in (11, 20, 34, 52, 76) for x, y in sides]


def _cost(
    axes: Axes,
    label: Annotation,
    offset: tuple[float, float],
    placed: Sequence[_Placed],
    crowd: np.ndarray,
) -> float:
    """Return how bad a place is: out of the axes, over another label, over dots, or far away."""
    here = _put(axes, label, offset)
    box, inside = here.box, axes.bbox
    leaves = box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1
    clashes = sum(here.clashes(other) for other in placed)
    xs, ys, weights = crowd
    hidden = (xs > box.x0) & (xs < box.x1) & (ys > box.y0) & (ys < box.y1)
    # A horizontal leader would run along a step of the front.
    level = 1.0 if offset[1] == 0 else 0.0
    far = math.hypot(*offset) / 25
    return float(1000 * (leaves + clashes) + weights[hidden].sum() + level + far)


def _crowd(axes: Axes, info: FrontInfo) -> np.ndarray:
    """Return what labels should not hide, as rows of x and y in pixels and of weights."""
    corners = [(left.x, left.y, right.x, right.y) for left, right in pairwise(info.steps)]
    along = [
        (x, y, 1.0)
        for x0, y0, x1, y1 in corners
        for share in np.linspace(0, 1, 60)
        for x, y in ((x0 + share * (x1 - x0), y0), (x1, y0 + share * (y1 - y0)))
    ]
    marks = [*info.members, *info.recommended, *([info.baseline] if info.baseline else [])]
    dots = [(p.x, p.y, 8.0) for p in marks] + [(p.x, p.y, 1.5) for p in info.trials]
    rows = np.array([*along, *dots])
    pixels = axes.transData.transform(rows[:, :2])
    return np.vstack([pixels.T, rows[:, 2]])


def _front_subtitle(info: FrontInfo, beyond: int) -> str:
    what = f"{_count(info.trials)} (grey), {len(info.members)} on the Pareto front (blue)"
    plane = "; the line joins the best in this plane" if len(info.steps) < len(info.members) else ""
    edge = f"; {beyond} beyond the axes, on the edge" if beyond else ""
    return f"{what}; lower left is better{plane}{edge}"
