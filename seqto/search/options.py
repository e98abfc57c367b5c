"""What each layer may become: the bytes and the predicted harm of each precision."""

from collections.abc import Sequence

import numpy as np

from seqto.errors import ConfigError
from seqto.types import FLOAT32, Candidate, LayerScore


class Menu:
    """Costs and sizes, a row a layer and a column a precision; a choice has a column a layer."""

    def __init__(self, ranking: Sequence[LayerScore]) -> None:
        self.layers = [score.layer.name for score in ranking]
        self.precisions = sorted({name for score in ranking for name in score.sizes})
        self.costs = np.array([[_cost(score, p) for p in self.precisions] for score in ranking])
        sizes = [[float(score.sizes[p]) for p in self.precisions] for score in ranking]
        self.sizes = np.array(sizes)

    def candidate(self, choice: Sequence[int]) -> Candidate:
        """Return the candidate of this choice."""
        return Candidate.of(
            {layer: self.precisions[at] for layer, at in zip(self.layers, choice, strict=True)}
        )

    def bytes(self, choice: Sequence[int]) -> float:
        """Return what the weights of this choice take."""
        return float(self.sizes[np.arange(len(self.layers)), list(choice)].sum())

    def harm(self, choice: Sequence[int]) -> float:
        """Return the predicted harm of this choice."""
        return float(self.costs[np.arange(len(self.layers)), list(choice)].sum())

    def smallest(self) -> list[int]:
        """Return the choice with the fewest bytes, of equal ones the least harmful."""
        return [
            min(range(len(sizes)), key=lambda at: (sizes[at], costs[at]))
            for sizes, costs in zip(self.sizes.tolist(), self.costs.tolist(), strict=True)
        ]

    def unchanged(self) -> list[int]:
        """Return the choice that leaves every layer as it is."""
        return [self.precisions.index(FLOAT32)] * len(self.layers)


def _cost(score: LayerScore, precision: str) -> float:
    if precision == FLOAT32:
        return 0.0
    if precision not in score.costs:
        raise ConfigError(
            f"the chosen sensitivity does not predict what {precision} does to a layer. "
            f"Use sensitivity=divergence, or leave {precision} out of precisions."
        )
    return score.costs[precision]
