"""What the plots show, as plain numbers: computed from a study's record and its front alone."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqto.figures import LOSS, figure, is_known, share
from seqto.pareto.front import comparable
from seqto.types import Front, LayerScore, StudyRecord, Trial

EXCLUDED = "excluded_count"
_WIDE, _SMALL = 30.0, 0.01
_FEW_PLACES = 3
_FEWEST, _MOST = 8, 30
"""How many layers a picture names at the least and at the most."""

RAW = ("kl", "mse", "first_half", "second_half")
"""Details that are not normalised, even where all of them happen to lie between 0 and 1."""


@dataclass(frozen=True)
class Axis:
    """How an objective is shown: its raw value times `factor`, in `unit`."""

    objective: str
    label: str
    unit: str = ""
    factor: float = 1.0
    baseline: float | None = None
    """The float model's own figure, as shown."""

    @property
    def title(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def text(self, shown: float) -> str:
        """Return a value as a person writes it, with two or three digits that matter."""
        digits = 0 if abs(shown) >= 100 else 1 if abs(shown) >= 10 else 2
        number = f"{shown:.{digits}f}" if abs(shown) >= 0.01 or shown == 0 else f"{shown:.1e}"
        if "." in number and "e" not in number:
            number = number.rstrip("0").rstrip(".")
        return f"{number} {self.unit.removesuffix(' of the float model')}".strip()


@dataclass(frozen=True)
class Detail:
    """One normalised part of the layers' scores; NaN where a layer lacks it."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class SensitivityInfo:
    """How much quantization hurts each layer, the most hurt first.

    `shares` are the scores scaled to 0 to 1; `details` are the parts of the scores that were
    between 0 and 1 from the start. `ranked` says what the scores are.
    """

    title: str
    layers: tuple[str, ...]
    scores: tuple[float, ...]
    shares: tuple[float, ...]
    details: tuple[Detail, ...]
    ranked: str = "score"
    harms: tuple[float, ...] = ()
    """What quantizing each layer alone does, where the scores are made from that."""

    @property
    def logarithmic(self) -> bool:
        """Whether the scores span so many sizes that only their logarithms can be seen."""
        known = [each for each in self.scores if each > 0]
        return len(known) > 1 and min(self.scores) >= 0 and max(known) > _WIDE * min(known)

    @property
    def matter(self) -> int:
        """How many of the first layers matter: they have a hundredth of the largest score."""
        most = max(self.shares, default=0.0)
        count = sum(each >= _SMALL * most for each in self.shares)
        return min(len(self.layers), max(_FEWEST, min(count, _MOST)))


@dataclass(frozen=True)
class ObjectiveLine:
    """One objective of the candidates at their places, in percent from the best to the worst."""

    label: str
    best: str
    worst: str
    percents: tuple[float, ...]
    trend: tuple[tuple[int, float], ...]
    """The median percent at each place."""


@dataclass(frozen=True)
class Mark:
    """A recommended candidate on the plot of the objectives."""

    label: str
    place: int
    percents: tuple[float, ...]
    """Its value on every line."""


@dataclass(frozen=True)
class ObjectivesInfo:
    """The objectives of all complete candidates, over how many layers each leaves in float32.

    Where nearly all leave equally many, the candidates stand side by side, the smallest first.
    """

    title: str
    across: str
    places: tuple[int, ...]
    names: tuple[str, ...]
    """What the places are called, if not by their numbers."""
    lines: tuple[ObjectiveLine, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Point:
    """A trial on the plane of the front, labelled where it is recommended."""

    x: float
    y: float
    label: str = ""


@dataclass(frozen=True)
class FrontInfo:
    """All complete trials in the plane of two objectives, and the front among them.

    `steps` are the members that are optimal in this plane alone: with two objectives all members.
    """

    title: str
    x: Axis
    y: Axis
    trials: tuple[Point, ...]
    members: tuple[Point, ...]
    steps: tuple[Point, ...]
    recommended: tuple[Point, ...]
    baseline: Point | None


def study_title(record: StudyRecord) -> str:
    """Name a study by its model, device and quantization."""
    parts = [record.tags.get(f"seqto.{name}") for name in ("model", "device", "quantization")]
    return " · ".join(part for part in parts if part) or f"study {record.key}"


def sensitivity_info(record: StudyRecord) -> SensitivityInfo:
    """Return the layers' scores with those of their details that are normalised."""
    scores = tuple(row.score for row in record.scores)
    return SensitivityInfo(
        title=study_title(record),
        layers=tuple(row.layer.name for row in record.scores),
        scores=scores,
        shares=_shares(scores),
        details=_details(record.scores),
        ranked=ranked_by(record.scores),
        harms=tuple(row.details.get("divergence", math.nan) for row in record.scores),
    )


def ranked_by(scores: Sequence[LayerScore]) -> str:
    """Say what the layers are ranked by, where their sensitivity is known to tell."""
    known = {"divergence_per_byte": "harm per byte saved", "divergence": "harm"}
    for detail, words in known.items():
        if scores and all(row.details.get(detail) == row.score for row in scores):
            return words
    return "score"


def objectives_info(record: StudyRecord, front: Front) -> ObjectivesInfo:
    """Return each objective of the complete candidates by the number of excluded layers."""
    trials = sorted(
        _measured(record, front), key=lambda trial: (len(trial.candidate.excluded), trial.index)
    )
    places = tuple(len(trial.candidate.excluded) for trial in trials)
    layers = max(len(trial.candidate.precisions) for trial in trials)
    across = f"layers left in float32, of {layers}"
    names: tuple[str, ...] = ()
    if len(trials) > len(set(places)) < _FEW_PLACES:
        trials.sort(key=lambda trial: (trial.metrics.get("size_bytes", 0.0), trial.index))
        places, across = tuple(range(len(trials))), "candidates, the smallest first"
        names = tuple(f"#{trial.index}" for trial in trials)
    lines = tuple(_line(name, record, trials, places) for name in front.objectives)
    return ObjectivesInfo(
        title=study_title(record),
        across=across,
        places=places,
        names=names,
        lines=lines,
        marks=tuple(_marks(front, trials, places, lines)),
    )


def front_info(record: StudyRecord, front: Front) -> FrontInfo:
    """Return the trials and the front in the plane of two objectives, the loss upwards."""
    x, y = _plane(record, front)
    members = [_point(trial, x, y) for trial in front.members]
    return FrontInfo(
        title=study_title(record),
        x=x,
        y=y,
        trials=tuple(_point(trial, x, y) for trial in _measured(record, front)),
        members=tuple(members),
        steps=tuple(_steps(members)),
        recommended=tuple(_point(trial, x, y, text) for trial, text in _labels(front)),
        baseline=_baseline_point(x, y),
    )


def axis(objective: str, baseline: Mapping[str, float]) -> Axis:
    """Return how an objective is shown: as a share of the float model where there is such a one."""
    shown, of_float = figure(objective), share(objective)
    label, own = shown.label or shown.title, baseline.get(objective)
    if of_float and is_known(own) and own > 0:
        return Axis(objective, label, of_float.unit, of_float.factor / own, of_float.factor)
    if shown.of_float is not None:
        own = shown.of_float
    known = own * shown.factor if is_known(own) else None
    return Axis(objective, label, shown.unit, shown.factor, known)


def shown_range(key: Sequence[float], others: Sequence[float], head: float) -> tuple[float, float]:
    """Return an axis that fits the key values, and others not far beyond, with some head room."""
    low, high = min(key), max(key)
    reach = high - low or math.inf
    near = [value for value in others if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    span = high - low or 0.1 * abs(high) or 1.0
    return low - 0.08 * span, low + (1 + head) * span


_FAR = 2.5
"""A float model so many times as far as the front would squeeze the candidates together."""


def is_far(own: float | None, members: Sequence[float]) -> bool:
    """Tell whether the float model is better a mark at the axis' edge."""
    return own is not None and bool(members) and own > _FAR * max(members) > 0


def _shares(scores: Sequence[float]) -> tuple[float, ...]:
    """Scale scores to 0..1; from 0 where none is negative, so that their ratios stay visible."""
    finite = [score for score in scores if math.isfinite(score)]
    low = min(0.0, *finite) if finite else 0.0
    span = max(finite, default=0.0) - low
    return tuple((score - low) / span if span > 0 else 0.0 * score for score in scores)


def _details(scores: Sequence[LayerScore]) -> tuple[Detail, ...]:
    names = dict.fromkeys(name for row in scores for name in row.details if name not in RAW)
    found = [
        Detail(name, tuple(row.details.get(name, math.nan) for row in scores)) for name in names
    ]
    same = tuple(row.score for row in scores)
    return tuple(each for each in found if _normalised(each.values) and each.values != same)


def _normalised(values: Sequence[float]) -> bool:
    known = [value for value in values if not math.isnan(value)]
    return bool(known) and all(0 <= value <= 1 for value in known)


def _measured(record: StudyRecord, front: Front) -> list[Trial]:
    """Return the trials that have a number for every objective of the front."""
    return [
        trial
        for trial in comparable(record.trials)
        if all(math.isfinite(trial.metrics.get(name, math.nan)) for name in front.objectives)
    ]


def _labels(front: Front) -> list[tuple[Trial, str]]:
    """Return each recommended trial once, with all its aliases."""
    trials = {each.trial.id: each.trial for each in front.recommended}
    return [
        (trial, f"{', '.join(front.aliases(trial))} #{trial.index}") for trial in trials.values()
    ]


def _line(
    objective: str, record: StudyRecord, trials: Sequence[Trial], places: Sequence[int]
) -> ObjectiveLine:
    values = [trial.metrics[objective] for trial in trials]
    low, high = min(values), max(values)
    percents = tuple(_percent(value, low, high) for value in values)
    by_place: dict[int, list[float]] = {}
    for place, percent in zip(places, percents, strict=True):
        by_place.setdefault(place, []).append(percent)
    shown = axis(objective, record.baseline)
    return ObjectiveLine(
        label=shown.label,
        best=shown.text(low * shown.factor),
        worst=shown.text(high * shown.factor),
        percents=percents,
        trend=tuple((place, statistics.median(each)) for place, each in by_place.items()),
    )


def _percent(value: float, low: float, high: float) -> float:
    return 100 * (value - low) / (high - low) if high > low else 0.0


def _marks(
    front: Front,
    trials: Sequence[Trial],
    places: Sequence[int],
    lines: Sequence[ObjectiveLine],
) -> list[Mark]:
    rows = {trial.id: row for row, trial in enumerate(trials)}
    return [
        Mark(
            label=text,
            place=places[rows[trial.id]],
            percents=tuple(line.percents[rows[trial.id]] for line in lines),
        )
        for trial, text in _labels(front)
        if trial.id in rows
    ]


def _plane(record: StudyRecord, front: Front) -> tuple[Axis, Axis]:
    names = list(front.objectives)
    if LOSS in names:
        names = [*[name for name in names if name != LOSS][:1], LOSS]
    if len(names) == 1:
        # One objective spans no plane: the other axis is how many layers it takes.
        return Axis(EXCLUDED, "excluded layers"), axis(names[0], record.baseline)
    return axis(names[0], record.baseline), axis(names[1], record.baseline)


def _point(trial: Trial, x: Axis, y: Axis, label: str = "") -> Point:
    return Point(_value(trial, x), _value(trial, y), label)


def _value(trial: Trial, axis: Axis) -> float:
    if axis.objective == EXCLUDED:
        return float(len(trial.candidate.excluded))
    return trial.metrics[axis.objective] * axis.factor


def _steps(members: Sequence[Point]) -> list[Point]:
    """Return the members that none beats in the plane, from left to right."""
    steps: list[Point] = []
    for point in sorted(members, key=lambda point: (point.x, point.y)):
        if not steps or point.y < steps[-1].y:
            steps.append(point)
    return steps


def _baseline_point(x: Axis, y: Axis) -> Point | None:
    if x.baseline is None or y.baseline is None:
        return None
    return Point(x.baseline, y.baseline, "float model")
