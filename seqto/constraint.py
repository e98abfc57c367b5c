"""What a user can accept: where a study spends its evaluations, and what it answers with."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import ConfigDict, Field, PositiveFloat
from pydantic.dataclasses import dataclass

from seqto.pareto import comparable, non_dominated
from seqto.types import Trial


@dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class Constraint:
    """Limits that a model has to meet; a value of exactly the limit meets it."""

    max_accuracy_loss: Annotated[float, Field(ge=0, le=1)] | None = None
    max_size_ratio: PositiveFloat | None = None
    max_latency_ms: PositiveFloat | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the metric they bound."""
        given = {
            "accuracy_loss": self.max_accuracy_loss,
            "size_ratio": self.max_size_ratio,
            "latency_ms": self.max_latency_ms,
        }
        return {name: limit for name, limit in given.items() if limit is not None}

    def excess(self, metrics: Mapping[str, float]) -> float:
        """Return by how much the worst limit is exceeded, as a share of it; 0 where all are met."""
        return max(
            (
                max(0.0, metrics[name] - limit) / max(limit, 1e-9)
                for name, limit in self.limits().items()
            ),
            default=0.0,
        )

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best trial that meets the limits: the smallest, then the least lossy.

        With a limit on size but none on loss it is the least lossy, then the smallest.
        """
        meeting = [trial for trial in comparable(trials) if self.excess(trial.metrics) == 0]
        return min(meeting, key=lambda trial: self._order(trial.metrics), default=None)

    def nearest(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that exceeds the limits the least."""
        return min(comparable(trials), key=lambda trial: self.excess(trial.metrics))

    def shorten(self, screened: Sequence[Trial], count: int, float_bytes: float) -> list[Trial]:
        """Return so many screened trials around the limits, where the answer has to be.

        On the screen the disagreement of a few samples stands for the loss: candidates on both
        sides of the limit are taken, as it is only an estimate.
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
        start = (passing[0] if passing else len(front)) - count // 3
        # Near the end of the front all that is left there is taken, and more before it.
        start = max(0, min(start, len(front) - count))
        return front[start : start + count]

    def _order(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        size = metrics["size_ratio"]
        harm = (metrics["accuracy_loss"], metrics.get("divergence", 0.0))
        sized = self.max_size_ratio is not None and self.max_accuracy_loss is None
        return (*harm, size) if sized else (size, *harm)
