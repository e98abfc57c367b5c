"""What a user can accept: the constraint of a study, and the gate of its front."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.figures import PREDICTED, Limit, limited
from seqto.pareto.front import comparable, find_front, non_dominated
from seqto.pareto.recommend import TESTED, Rule
from seqto.types import CONSTRAINT, Front, Recommendation, StudyRecord, Trial

ANSWER = "answer"
"""The alias of the best member of the front that meets the constraint."""

_A_POINT = 0.01
"""Stands for a limit of 0: else any loss would be infinitely worse than a file of any size."""

_ROUNDING = 1e-9
"""What the arithmetic of fractions may be off by: 1 - 0.7 is more than 0.3."""

_MIN = "min_"


class Limits:
    """Limits that a model has to meet; a value of exactly the limit meets it.

    Fields called `max_<figure>` are upper limits; a `min_` one asks for one minus the figure.
    """

    bounded: ClassVar[Mapping[str, str]] = {}
    """The figure that each field limits."""

    if TYPE_CHECKING:  # The fields come from the table of figures, where mypy does not see them.
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

        def __init__(self, **limits: float | None) -> None: ...

        def __getattr__(self, name: str) -> float | None: ...

    def limits(self) -> dict[str, float]:
        """Return the upper limits that are set, by the figure they bound."""
        return {
            self.bounded[name]: 1 - value if name.startswith(_MIN) else value
            for name, value in self._given().items()
        }

    def excess(self, metrics: Mapping[str, float]) -> float:
        """Return by how much the worst limit is exceeded, as a share of it; 0 where all are met."""
        return max(
            # What was not measured does not meet a limit.
            (_excess(metrics.get(name, math.inf), each) for name, each in self.limits().items()),
            default=0.0,
        )

    def meeting(self, trials: Sequence[Trial], objectives: Sequence[str] = ()) -> list[Trial]:
        """Return the trials that meet the limits, the best first: the cheapest, the least lossy.

        The cheapest is the smallest, or the fastest where `objectives` have latency and no size.
        With a limit on a cost, but none on loss, it is the least lossy, then the cheapest.
        """
        meeting = [trial for trial in comparable(trials) if self.excess(trial.metrics) == 0]
        return sorted(meeting, key=lambda trial: self._order(trial.metrics, objectives))

    def best(self, trials: Sequence[Trial], objectives: Sequence[str] = ()) -> Trial | None:
        """Return the best trial that meets the limits, if any does; see `meeting`."""
        return next(iter(self.meeting(trials, objectives)), None)

    def nearest(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that exceeds the limits the least."""
        return min(comparable(trials), key=lambda trial: self.excess(trial.metrics))

    def __str__(self) -> str:
        return ", ".join(
            f"{name[len(_MIN) :]} {'>=' if name.startswith(_MIN) else '<='} {value:g}"
            for name, value in self._given().items()
        )

    def _given(self) -> dict[str, float]:
        """Return the fields that are set."""
        values = {name: getattr(self, name) for name in self.bounded}
        return {name: value for name, value in values.items() if value is not None}

    def _order(self, metrics: Mapping[str, float], objectives: Sequence[str]) -> tuple[float, ...]:
        timed = "latency_ms" in objectives and not {"size_bytes", "size_ratio"} & {*objectives}
        cost = metrics.get("latency_ms" if timed else "size_ratio", math.inf)
        harm = (metrics["accuracy_loss"], metrics.get("divergence", 0.0))
        limits = self.limits()
        costs = {"size_ratio", "float_share", "latency_ms"}
        limited_cost = limits.keys() & costs and "accuracy_loss" not in limits
        return (*harm, cost) if limited_cost else (cost, *harm)


Kind = TypeVar("Kind", bound=type[Limits])


def _with_fields(key: Callable[[str, Limit], tuple[str, Any]]) -> Callable[[Kind], Kind]:
    """Make a class a dataclass with an optional field for each figure that users may limit.

    `key` returns a field's name and the type of its values, given a figure's name and limit.
    """

    def decorate(kind: Kind) -> Kind:
        fields = {name: key(name, limit) for name, limit in limited().items()}
        kind.bounded = {field: name for name, (field, _) in fields.items()}
        kind.__annotations__ = {field: values | None for field, values in fields.values()}
        for field in kind.bounded:
            setattr(kind, field, None)
        config = ConfigDict(extra="forbid")
        return dataclass(kind, kw_only=True, frozen=True, config=config)  # type: ignore[return-value]

    return decorate


@_with_fields(lambda name, limit: (f"max_{name}", limit.kind))
class Constraint(Limits):
    """What the answer of a study has to meet; it steers the search, too."""

    def shorten(
        self,
        screened: Sequence[Trial],
        count: int,
        float_bytes: float,
        objectives: Sequence[str] = ("size_bytes", "divergence"),
    ) -> list[Trial]:
        """Return so many screened trials around the limits, where the answer has to be.

        The screen knows no loss, only on how many of a few samples a trial disagrees with the
        float model. That is a coarse estimate: so trials on both sides of the limit are taken.
        Beyond the limit the steps between them grow, so that one of them meets it even where the
        screen was far too optimistic.
        """
        within = [each for each in screened if not self._known_excess(each.metrics)]
        front = sorted(
            non_dominated(within or screened, objectives),
            key=lambda trial: -trial.metrics["divergence"],
        )
        if self.max_size_ratio is not None:
            limit = self.max_size_ratio * float_bytes
            small = [trial for trial in front if trial.metrics["size_bytes"] <= limit]
            return small[-count:] or front[:count]
        if self.max_accuracy_loss is None:
            known = PREDICTED in front[0].metrics or self.max_float_share is not None
            return front[-count:] if known and within else front[:count]
        passing = [
            place
            for place, trial in enumerate(front)
            if trial.metrics["disagreement"] <= self.max_accuracy_loss
        ]
        met = passing[0] if passing else len(front)
        # Near the end of the front all that is left there is taken, and more before it.
        start = max(0, min(met - count // 3, len(front) - count))
        below = front[start:met][:count]
        return below + _farther_and_farther(front[met:], count - len(below))

    def _known_excess(self, metrics: Mapping[str, float]) -> float:
        """Return by how much the limits are exceeded that the screen knows exactly, or predicts."""
        bound = Constraint(max_float_share=self.max_float_share, max_latency_ms=self.max_latency_ms)
        known = {"latency_ms": metrics.get(PREDICTED, 0.0), **metrics}
        return bound.excess(known)


@_with_fields(lambda name, limit: limit.gate(name))
class Gate(Limits):
    """What a pipeline asks of the finished front; the search knows nothing of it."""


def _farther_and_farther(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return so many of these, from the first to the last but one, with growing steps.

    The last one is the float model, or next to it.
    """
    if count >= len(trials):
        return list(trials)
    places: list[int] = []
    for number in range(count):
        wanted = round((len(trials) - 2) * (number / max(count - 1, 1)) ** 2)
        places.append(max(wanted, places[-1] + 1) if places else 0)
    return [trials[place] for place in places]


def constraint_of(record: StudyRecord) -> Constraint:
    """Return the constraint that the study had."""
    limits = json.loads(record.tags.get(CONSTRAINT, "{}"))
    return Constraint(**{f"max_{name}": limit for name, limit in limits.items()})


def front_within(
    trials: Sequence[Trial],
    objectives: Sequence[str],
    baseline: Mapping[str, float],
    constraint: Constraint,
    top_k: int = 3,
    rule: Rule = TESTED,
) -> Front:
    """Return the front of these trials, with the answer to the constraint.

    Where trials meet the constraint but no member does, as with a limit on what is not traded off,
    it is the front of those that meet it.
    """
    front = find_front(trials, objectives, baseline, top_k, rule)
    meeting = constraint.meeting(trials) if constraint.limits() else []
    if meeting and not constraint.meeting(front.members):
        front = find_front(meeting, objectives, baseline, top_k, rule)
    return with_answer(front, constraint)


def with_answer(front: Front, constraint: Constraint) -> Front:
    """Return the front with what meets the constraint, if any is set, recommended first."""
    best = constraint.best(front.members, front.objectives) if constraint.limits() else None
    if best is None:
        return front
    return replace(front, recommended=(Recommendation(ANSWER, best), *front.recommended))


def _excess(value: float, limit: float) -> float:
    share = (value - limit) / (limit or _A_POINT)
    return share if value - limit > _ROUNDING * max(limit, 1.0) else 0.0
