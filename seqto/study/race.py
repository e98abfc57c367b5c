"""The shortlisted candidates, evaluated as long as a larger one may still be better."""

from collections.abc import Mapping, Sequence

from seqto.search.planned import Planned
from seqto.types import Candidate, Trial, TrialState

_SURELY = 1.05
"""By how much an estimated size has to be above a measured one to be larger for sure."""


class Race(Planned):
    """Candidates of which those that cannot be on the front any more are not evaluated.

    A candidate that loses nothing on any sample dominates all larger ones. `sizes` are estimates;
    candidates without one are always evaluated. Of those that are asked for at a time, none is
    dropped: they run side by side.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        sizes: Mapping[Candidate, float] | None = None,
    ) -> None:
        self.plan(candidates)
        self._listed, self._sizes = candidates, sizes or {}
        self.dropped: tuple[Candidate, ...] = ()

    @property
    def evaluated(self) -> list[Candidate]:
        """The candidates that were not dropped."""
        return [each for each in self._listed if each not in self.dropped]

    def tell(self, trial: Trial) -> None:
        """Drop the candidates that this one dominates."""
        if trial.state is not TrialState.COMPLETE or trial.metrics["accuracy_loss"] > 0:
            return
        limit = _SURELY * trial.metrics["size_bytes"]
        larger = [each for each in self._pending if self._sizes.get(each, 0.0) > limit]
        self.dropped += tuple(larger)
        self.plan(each for each in self._pending if each not in larger)
