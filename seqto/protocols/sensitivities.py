"""How layers are ranked."""

from collections.abc import Sequence
from typing import Protocol

from seqto.protocols.quantizers import Quantizer
from seqto.types import Layer, LayerScore, Model, Ranges, Samples


class Sensitivity(Protocol):
    """How much quantization hurts each layer.

    Scores are plain, finite floats, one for each layer, and the same each time. `costs` predict
    the harm of `int8` at least, never below 0. Where there are two samples or more, `details` have
    the scores of the `first_half` and the `second_half` of them, each ranked as if there were no
    others.
    """

    name: str

    def score(
        self,
        model: Model,
        layers: Sequence[Layer],
        quantizer: Quantizer,
        ranges: Ranges,
        samples: Samples,
    ) -> tuple[LayerScore, ...]:
        """Return one score per layer, the most hurt first."""
        ...
