"""How a study is run and concluded."""

from dataclasses import field
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, nearest
from seqto.figures import objectives
from seqto.pareto.limits import Constraint, Gate
from seqto.pareto.recommend import TESTED, Rule
from seqto.types import Goal

MAY_FAIL = 0.5
"""The share of candidates that may fail before the study does, unless another one is given."""


@dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class StudySettings:
    """How a study is run and concluded."""

    objectives: list[str] = field(default_factory=lambda: ["accuracy_loss", "size_bytes"])
    recommend: Rule = TESTED
    top_k: Annotated[int, Field(ge=1)] = 3
    resume: bool = True
    batch: Annotated[int, Field(ge=1)] = 1
    max_failed: Annotated[float, Field(ge=0, le=1)] | None = None
    attempts: Annotated[int, Field(ge=1)] = 3
    constraint: Constraint = field(default_factory=Constraint)
    gate: Gate = field(default_factory=Gate)
    register_models: bool = True

    @property
    def may_fail(self) -> float:
        """The share of candidates that may fail before the study does."""
        return MAY_FAIL if self.max_failed is None else self.max_failed

    @property
    def may_miss(self) -> float:
        """The share of candidates that the answer may be given without; none unless it is said."""
        return self.max_failed or 0.0

    @property
    def times(self) -> bool:
        """Whether latency counts: as an objective, or by a limit."""
        limits = {**self.constraint.limits(), **self.gate.limits()}
        return any("latency" in name for name in (*self.objectives, *limits))

    @property
    def only_loss_and_size(self) -> bool:
        """Whether nothing else counts: no other objective, and no limit on anything."""
        others = {*self.objectives} - {"accuracy_loss", "size_bytes", "size_ratio"}
        return not (others or self.constraint.limits() or self.gate.limits())

    @property
    def goal(self) -> Goal:
        """What the search trades off; a gate does not change what is searched for."""
        return Goal(
            size=any(name in self.objectives for name in ("size_bytes", "size_ratio")),
            latency="latency_ms" in self.objectives,
            max_latency_ms=self.constraint.max_latency_ms,
        )

    def __post_init__(self) -> None:
        """Refuse objectives that are not measured."""
        known = [each.name for each in objectives()]
        for name in self.objectives:
            if name not in known:
                raise ConfigError(
                    f"objectives has {name!r}{nearest(name, known)}, which is not measured. "
                    f"Choose from {', '.join(known)}."
                )
        if len(set(self.objectives)) < 2:
            raise ConfigError(
                "objectives needs at least two different ones to trade off, "
                "for example objectives=[accuracy_loss,size_bytes]."
            )
