"""The paper's strategy: exclude one more layer at a time, in ranked order."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.search.options import units
from seqto.types import Candidate, LayerScore, Trial, TrialState


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class LadderSearch:
    """Candidate 0 is fully quantized; each next one excludes `step` more layers.

    Layers that must have the same precision are excluded together, and count as one.
    """

    name: str = "ladder"
    order: Literal["ranked", "reversed", "random"] = "ranked"
    seed: int = 0
    step: Annotated[int, Field(ge=1)] = 1
    maximum: Annotated[int, Field(ge=0)] | None = None
    stop_at_loss: Annotated[float, Field(ge=0, le=1)] | None = None

    screens: int = field(default=0, init=False)
    evaluations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Start with nothing to try."""
        self._units: list[list[str]] = []
        self._rungs: list[int] = []
        self._stopped = False

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Lay out the rungs: how many units each candidate excludes."""
        ranked = [[score.layer.name for score in unit] for unit in units(ranking)]
        self._units = self._ordered(ranked)
        most = len(ranking) if self.maximum is None else self.maximum
        top = sum(total <= most for total in itertools.accumulate(map(len, self._units)))
        rungs = list(range(0, top + 1, self.step))
        # Always include the last rung: with every layer excluded it is the float model.
        self._rungs = list(dict.fromkeys([*rungs, top])) if ranking else []
        self._stopped = False

    def ask(self, count: int) -> list[Candidate]:
        """Return the next candidates up the ladder."""
        if self._stopped:
            return []
        # A loss limit may end the ladder at any rung, so only the next one is sure to be needed.
        taken = 1 if self.stop_at_loss is not None else count
        rungs, self._rungs = self._rungs[:taken], self._rungs[taken:]
        return [self._candidate(rung) for rung in rungs]

    def tell(self, trial: Trial) -> None:
        """Stop once the loss is low enough."""
        if self.stop_at_loss is not None and trial.state is TrialState.COMPLETE:
            self._stopped |= trial.metrics["accuracy_loss"] <= self.stop_at_loss

    def remaining(self) -> int:
        """Return at most how many candidates are left."""
        return 0 if self._stopped else len(self._rungs)

    def _candidate(self, rung: int) -> Candidate:
        every, excluded = itertools.chain(*self._units), itertools.chain(*self._units[:rung])
        return Candidate.excluding(every, excluded)

    def _ordered(self, ranked: list[list[str]]) -> list[list[str]]:
        if self.order == "reversed":
            return ranked[::-1]
        if self.order == "random":
            return random.Random(self.seed).sample(ranked, len(ranked))
        return ranked
