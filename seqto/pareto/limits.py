"""What a user can accept: where a study spends its evaluations, its answer, and its gate."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import ConfigDict, Field, PositiveFloat
from pydantic.dataclasses import dataclass

from seqto.pareto.front import comparable, non_dominated
from seqto.types import CONSTRAINT, Front, Recommendation, StudyRecord, Trial

ANSWER = "answer"
"""The alias of the member of the front that is the best to meet the constraint."""

_A_POINT = 0.01
"""Stands for a limit of 0: else any loss would be infinitely worse than a file of any size."""

_ROUNDING = 1e-9
"""What the arithmetic of fractions may be off by: 1 - 0.7 is more than 0.3."""


class Limits:
    """Upper limits of metrics that a model has to meet; a value of exactly the limit meets it."""

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the metric they bound."""
        raise NotImplementedError

    def excess(self, metrics: Mapping[str, float]) -> float:
        """Return by how much the worst limit is exceeded, as a share of it; 0 where all are met."""
        return max(
            (_excess(metrics[name], limit) for name, limit in self.limits().items()), default=0.0
        )

    def meeting(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that meet the limits, the best first: the smallest, the least lossy.

        With a limit on size but none on loss it is the least lossy, then the smallest.
        """
        meeting = [trial for trial in comparable(trials) if self.excess(trial.metrics) == 0]
        return sorted(meeting, key=lambda trial: self._order(trial.metrics))

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best trial that meets the limits, if any does."""
        return next(iter(self.meeting(trials)), None)

    def nearest(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that exceeds the limits the least."""
        return min(comparable(trials), key=lambda trial: self.excess(trial.metrics))

    def __str__(self) -> str:
        return ", ".join(f"{name} <= {limit:g}" for name, limit in self.limits().items())

    def _order(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        size = metrics["size_ratio"]
        harm = (metrics["accuracy_loss"], metrics.get("divergence", 0.0))
        limits = self.limits()
        sized = "size_ratio" in limits and "accuracy_loss" not in limits
        return (*harm, size) if sized else (size, *harm)


@dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class Constraint(Limits):
    """What steers the search of a study, too."""

    max_accuracy_loss: Annotated[float, Field(ge=0, le=1)] | None = None
    max_size_ratio: PositiveFloat | None = None
    max_latency_ms: PositiveFloat | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the metric they bound."""
        return _given(self.max_accuracy_loss, self.max_size_ratio, self.max_latency_ms)

    def shorten(self, screened: Sequence[Trial], count: int, float_bytes: float) -> list[Trial]:
        """Return so many screened trials around the limits, where the answer has to be.

        On the screen the disagreement of a few samples stands for the loss: candidates on both
        sides of the limit are taken, as it is only an estimate, and a coarse one. Those above it
        are ever farther away, so that one of them meets it where the screen saw too little.
        """
        front = non_dominated(screened, ("size_bytes", "divergence"))
        if self.max_size_ratio is not None:
            limit = self.max_size_ratio * float_bytes
            within = [trial for trial in front if trial.metrics["size_bytes"] <= limit]
            return within[-count:] or front[:count]
        if self.max_accuracy_loss is None:
            return front[:count]
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


@dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class Gate(Limits):
    """What a pipeline asks of a front that is found; the search knows nothing of it."""

    max_accuracy_loss: Annotated[float, Field(ge=0, le=1)] | None = None
    min_size_reduction: Annotated[float, Field(ge=0, lt=1)] | None = None
    max_latency_ms: PositiveFloat | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the metric they bound."""
        reduction = self.min_size_reduction
        ratio = None if reduction is None else 1 - reduction
        return _given(self.max_accuracy_loss, ratio, self.max_latency_ms)

    def __str__(self) -> str:
        given = {
            "accuracy_loss <=": self.max_accuracy_loss,
            "size_reduction >=": self.min_size_reduction,
            "latency_ms <=": self.max_latency_ms,
        }
        return ", ".join(f"{name} {limit:g}" for name, limit in given.items() if limit is not None)


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


def with_answer(front: Front, constraint: Constraint) -> Front:
    """Return the front with what meets the constraint, if any is set, recommended first."""
    best = constraint.best(front.members) if constraint.limits() else None
    if best is None:
        return front
    return replace(front, recommended=(Recommendation(ANSWER, best), *front.recommended))


def _given(
    accuracy_loss: float | None, size_ratio: float | None, latency_ms: float | None
) -> dict[str, float]:
    limits = {
        "accuracy_loss": accuracy_loss,
        "size_ratio": size_ratio,
        "latency_ms": latency_ms,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _excess(value: float, limit: float) -> float:
    share = (value - limit) / (limit or _A_POINT)
    return share if value - limit > _ROUNDING * max(limit, 1.0) else 0.0
