"""How layers are ranked."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from seqto.protocols.quantizers import Quantizer
from seqto.protocols.tasks import Task
from seqto.types import Layer, LayerScore, Model, Observed, Ranges, Samples


class Sensitivity(Protocol):
    """How much quantization hurts each layer.

    Scores are plain, finite floats, one per layer, and the same each time. `costs` predict the harm
    of at least `int8`, and are never negative. With two or more samples, `details` have the scores
    from the `first_half` and from the `second_half` of the samples alone.
    """

    name: str

    def score(
        self,
        model: Model,
        layers: Sequence[Layer],
        quantizer: Quantizer,
        ranges: Ranges,
        samples: Samples,
        observed: Observed,
        task: Task,
    ) -> tuple[LayerScore, ...]:
        """Return one score per layer, the most sensitive first.

        `observed` are the outputs that count, and `task` says what harm to them is.
        """
        ...


@runtime_checkable
class PredictsPrecisions(Sensitivity, Protocol):
    """Optional, for a sensitivity that measures each precision that it is told to."""

    def predicting(self, precisions: Sequence[str]) -> Sensitivity:
        """Return the same sensitivity for these precisions only."""
        ...
