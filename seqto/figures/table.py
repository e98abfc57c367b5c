"""The table of figures: all that seqto knows of what it measures, apart from how to measure it.

Tables, sentences, pages, MLflow's views, objectives and limits are made from it. A new figure is
a row here, its value in what `seqto.measuring.evaluate.measure` returns and, where it may be
limited, its keys with their comments in conf/config.yaml.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from seqto.figures.formats import (
    in_bytes,
    in_digits,
    in_ms,
    in_percent,
    in_short_percent,
    is_known,
)

Metrics = Mapping[str, float]

LAST = 100
"""The column of figures that name none: behind the others, in the order of the table."""

OF_FLOAT = "% of the float model"
FRACTION = Annotated[float, Field(ge=0, le=1)]
SAVED_SHARE = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Limit:
    """How users limit a figure: with `max_<name>`, in constraint, gate and promotion."""

    example: str
    words: str
    """What `seqto.promote --help` says of it."""
    kind: Any = PositiveFloat
    """The type of the values that it takes."""
    saving: str = ""
    """The gate asks for `min_<saving>` instead: one minus the figure, at least."""

    def gate(self, name: str) -> tuple[str, Any]:
        """Return the gate's key for a figure of this name, and the type of its values."""
        return (f"min_{self.saving}", SAVED_SHARE) if self.saving else (f"max_{name}", self.kind)


@dataclass(frozen=True)
class Figure:
    """A measured figure. What is not said of it is as for any cost: the less of it, the better."""

    name: str
    """The metric's name in MLflow, and what users call it as an objective."""
    title: str
    """What tables call it."""
    column: int | None = LAST
    """Its place among the columns of tables; None: a column only where it is an objective."""
    detail: bool = False
    """Whether its column is in report.html alone."""
    dispensable: bool = False
    """Whether a narrow terminal does without its column."""
    write: Callable[[float], str] | None = None
    """How tables write it; by default with four digits and its unit."""

    spoken: str = ""
    """What sentences call it; by default its title."""
    write_spoken: Callable[[float], str] | None = None
    """How sentences write it; by default as tables do."""
    summary: str = ""
    """How the short description of a registered version writes it; by default as sentences do."""

    label: str = ""
    """What the axis of a plot is called; by default its title."""
    unit: str = ""
    factor: float = 1.0
    """What the value is multiplied by to be in its unit."""

    less_is_better: bool = True
    objective: bool = True
    """Whether a front may trade it off; objectives are minimised, so less has to be better."""
    alias: str = ""
    """Of the member of the front that is best in it; by default `best-<name>`."""
    limit: Limit | None = None
    """How users may limit it."""
    told: bool = True
    """Whether sentences about a candidate tell of it, if it has a limit."""
    in_views: bool = True
    """Whether MLflow's saved views show it."""

    share_of: str = ""
    """The figure that this one is a share of: its value over the float model's."""
    of_float: float | None = None
    """The float model's own value, where it is the same for every model."""
    has_interval: bool = False
    """Whether the ends of its 95 % interval are measured as `<name>_low` and `<name>_high`."""
    of_task: bool = False
    """Whether only some tasks measure it: views of all studies leave it out."""

    @property
    def best_alias(self) -> str:
        """The alias of the member of a front that is best in this figure."""
        return self.alias or f"best-{self.name.replace('_', '-')}"

    def value(self, metrics: Metrics, baseline: Metrics) -> float | None:
        """Return its value; a share is computed where it was not measured but can be."""
        if self.name in metrics or not self.share_of:
            return metrics.get(self.name)
        whole, own = metrics.get(self.share_of), baseline.get(self.share_of)
        return whole / own if is_known(whole) and is_known(own) and own > 0 else None

    def text(self, value: float | None) -> str:
        """Write a value as tables do; an empty text where it is not known."""
        if not is_known(value):
            return ""
        if self.write:
            return self.write(value)
        return f"{in_digits(value * self.factor)} {self.unit}".rstrip()

    @property
    def spoken_title(self) -> str:
        """What sentences call it."""
        return self.spoken or self.title

    def spoken_text(self, value: float) -> str:
        """Write a value as sentences do."""
        return self.write_spoken(value) if self.write_spoken else self.text(value)

    def summarised(self, value: float) -> str:
        """Write a value as the short description of a registered version does."""
        if self.summary:
            return self.summary.format(value)
        return f"{self.spoken_title} {self.spoken_text(value)}"


def _of_targets(name: str, title: str, column: int, **others: Any) -> Figure:
    """Return a figure of how well targets are met, which only some tasks measure."""
    usual: dict[str, Any] = {
        "write": lambda fraction: in_percent(fraction, 1),
        "unit": "%",
        "factor": 100.0,
        "less_is_better": False,
    }
    told: dict[str, Any] = {"dispensable": True, "objective": False, "has_interval": True}
    return Figure(name, title, column, of_task=True, **told, **{**usual, **others})


LOSS = "accuracy_loss"

EXPECTED = "expected_loss"
"""The loss that a screened candidate probably has."""

PREDICTED = "latency_predicted_ms"
CONVERSIONS = "latency_conversions_ms"
"""How long a candidate will take, and how much of that goes into conversions between floats and
integers, as predicted where latency is searched for."""

FIGURES: tuple[Figure, ...] = (
    Figure(
        LOSS,
        title="loss",
        column=3,
        write=lambda loss: in_percent(loss, 2),
        summary="{:.2%} loss",
        label="accuracy loss",
        unit="%",
        factor=100.0,
        alias="accurate",
        limit=Limit("0.01", "at most this loss; exactly this much meets it", FRACTION),
        of_float=0.0,
        has_interval=True,
    ),
    Figure(
        "divergence",
        title="divergence",
        column=4,
        detail=True,
        write=lambda divergence: f"{divergence:.2g}",
        objective=False,
        in_views=False,
    ),
    Figure(
        "accuracy_drop",
        title="accuracy drop",
        column=None,
        write=in_digits,
        unit="%",
        factor=100.0,
        in_views=False,
        of_float=0.0,
    ),
    Figure(
        "size_bytes",
        title="size",
        column=1,
        write=in_bytes,
        unit="MB",
        factor=1e-6,
        alias="small",
        in_views=False,
    ),
    Figure(
        "size_ratio",
        title="of float",
        column=2,
        dispensable=True,
        write=lambda ratio: in_percent(ratio, 1),
        spoken="share of the size",
        write_spoken=in_short_percent,
        summary="{:.0%} size",
        label="size",
        unit=OF_FLOAT,
        factor=100.0,
        alias="small",
        limit=Limit("0.3", "at most this share of the float model's size", saving="size_reduction"),
        share_of="size_bytes",
        of_float=1.0,
    ),
    Figure(
        "latency_ms",
        title="latency",
        column=16,
        write=in_ms,
        summary="{:.2f} ms",
        unit="ms",
        alias="fast",
        limit=Limit("8", "at most so many milliseconds an inference"),
    ),
    Figure(
        PREDICTED,
        title="predicted",
        column=17,
        detail=True,
        write=in_ms,
        label="predicted latency",
        unit="ms",
        objective=False,
        in_views=False,
    ),
    Figure(
        CONVERSIONS,
        title="conversions",
        column=18,
        detail=True,
        write=in_ms,
        label="predicted time in conversions",
        unit="ms",
        objective=False,
        in_views=False,
    ),
    Figure(
        "load_ms",
        title="load",
        column=19,
        detail=True,
        write=in_ms,
        label="load time",
        unit="ms",
        in_views=False,
    ),
    Figure(
        "load_peak_bytes",
        title="load memory",
        column=20,
        detail=True,
        write=in_bytes,
        label="memory to load",
        unit="MB",
        factor=1e-6,
        in_views=False,
    ),
    Figure(
        "float_share",
        title="in float",
        column=None,
        write=lambda share: in_percent(share, 1),
        label="weights in float",
        unit="%",
        factor=100.0,
        limit=Limit("0.1", "at most this share of the weights' bytes left in float", FRACTION),
        told=False,
        in_views=False,
        of_float=1.0,
    ),
    Figure(
        "accuracy",
        title="accuracy",
        column=5,
        dispensable=True,
        write=lambda accuracy: in_percent(accuracy, 1),
        unit="%",
        factor=100.0,
        less_is_better=False,
        has_interval=True,
    ),
    _of_targets("f1", "F1", 6),
    _of_targets("map_50", "mAP50", 7),
    _of_targets("map", "mAP", 8),
    _of_targets("mean_iou", "mIoU", 9),
    _of_targets("recall", "recall", 10),
    _of_targets("bleu", "BLEU", 11, write=lambda bleu: f"{100 * bleu:.1f}"),
    _of_targets("wer", "WER", 12, less_is_better=True),
    _of_targets("cer", "CER", 13, less_is_better=True),
    _of_targets("mae", "MAE", 14, less_is_better=True, write=in_digits, unit="", factor=1.0),
    _of_targets("sqnr_db", "SQNR", 15, write=lambda db: f"{db:.1f} dB", unit="dB", factor=1.0),
)
"""Every measured figure, in the order in which objectives, limits and views list them."""


def figure(name: str) -> Figure:
    """Return what is known of the metric of this name: at the least its name."""
    known = {each.name: each for each in FIGURES}
    return known.get(name) or Figure(name, title=name.replace("_", " "))


def columns(details: bool = False) -> list[Figure]:
    """Return the figures that tables show, from left to right."""
    shown = [each for each in FIGURES if each.column is not None and (details or not each.detail)]
    return by_column(shown)


def objectives() -> list[Figure]:
    """Return the figures that a front may trade off."""
    return [each for each in FIGURES if each.objective and each.less_is_better]


def costs() -> list[Figure]:
    """Return the objectives that are amounts, such as bytes or ms, which the loss is seen over."""
    return [each for each in objectives() if each.of_float is None]


def limited() -> dict[str, Limit]:
    """Return how users may limit figures, by the figure's name."""
    return {each.name: each.limit for each in FIGURES if each.limit}


def told() -> list[Figure]:
    """Return the figures that sentences about a candidate tell of."""
    return [each for each in FIGURES if each.limit and each.told]


def viewed() -> list[Figure]:
    """Return the figures that MLflow's saved views show."""
    return [each for each in FIGURES if each.in_views]


def whole(each: Figure) -> Figure:
    """Return the figure that this one is a share of; itself where it is no share."""
    return figure(each.share_of) if each.share_of else each


def share(name: str) -> Figure | None:
    """Return the figure that is the share of this one, if there is one."""
    return next((each for each in FIGURES if each.share_of == name), None)


def by_column(figures: list[Figure]) -> list[Figure]:
    """Return the figures in the order of their columns."""
    return sorted(figures, key=lambda each: LAST if each.column is None else each.column)


def float_metrics(baseline: Metrics) -> Metrics:
    """Return the float model's metrics as if it were a candidate."""
    own = {each.name: each.of_float for each in columns() if each.of_float is not None}
    return {**own, **baseline}
