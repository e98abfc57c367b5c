"""The options of each layer or group of layers: the bytes and the harm of each precision."""

from collections.abc import Sequence

import numpy as np

from seqto.errors import ConfigError
from seqto.types import FLOAT32, Candidate, LayerScore


class Menu:
    """Tables of costs and sizes: one row per unit, one column per precision.

    A unit is a layer, or several that must have the same precision. A choice is a list with one
    column index per unit.
    """

    def __init__(self, ranking: Sequence[LayerScore]) -> None:
        rows = units(ranking)
        self.layers = [[score.layer.name for score in row] for row in rows]
        self.positions = [min(score.layer.position or 0 for score in row) for row in rows]
        self.precisions = sorted({name for score in ranking for name in score.sizes})
        self.costs = np.array([[_cost(row, p) for p in self.precisions] for row in rows])
        self.sizes = np.array([[_size(row, p) for p in self.precisions] for row in rows])

    def candidate(self, choice: Sequence[int]) -> Candidate:
        """Return the candidate of this choice."""
        chosen = zip(self.layers, choice, strict=True)
        return Candidate.of({name: self.precisions[at] for unit, at in chosen for name in unit})

    def bytes(self, choice: Sequence[int]) -> float:
        """Return how many bytes the weights of this choice take."""
        return float(self.sizes[np.arange(len(self.layers)), list(choice)].sum())

    def harm(self, choice: Sequence[int]) -> float:
        """Return the predicted harm of this choice."""
        return float(self.costs[np.arange(len(self.layers)), list(choice)].sum())

    def smallest(self) -> list[int]:
        """Return the choice with the fewest bytes; among equal sizes, the least harmful."""
        return [
            min(range(len(sizes)), key=lambda at: (sizes[at], costs[at]))
            for sizes, costs in zip(self.sizes.tolist(), self.costs.tolist(), strict=True)
        ]

    def unchanged(self) -> list[int]:
        """Return the choice that leaves every layer in float32."""
        return [self.precisions.index(FLOAT32)] * len(self.layers)


def units(ranking: Sequence[LayerScore]) -> list[list[LayerScore]]:
    """Group the layers that must have the same precision, the most sensitive first."""
    found: dict[str, list[LayerScore]] = {}
    for score in ranking:
        found.setdefault(score.layer.unit, []).append(score)
    return list(found.values())


def _size(unit: Sequence[LayerScore], precision: str) -> float:
    """Return the bytes of a unit's weights; a weight shared by several layers counts once."""
    layers = [score.layer for score in unit]
    tensors = [(layer.weight, "") if layer.weight else ("", layer.name) for layer in layers]
    stored = dict(zip(tensors, unit, strict=True))
    return float(sum(score.sizes[precision] for score in stored.values()))


def _cost(unit: Sequence[LayerScore], precision: str) -> float:
    return sum(_layer_cost(score, precision) for score in unit)


def _layer_cost(score: LayerScore, precision: str) -> float:
    if precision == FLOAT32:
        return 0.0
    if precision not in score.costs:
        raise ConfigError(
            f"the chosen sensitivity does not predict what {precision} does to a layer. "
            f"Use sensitivity=divergence, or leave {precision} out of precisions."
        )
    return score.costs[precision]
