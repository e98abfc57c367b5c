"""How much of a candidate is left in float."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from seqto.types import FLOAT16, FLOAT32, Candidate, Layer, Trial

FLOAT_SHARE = "float_share"
"""The figure's name."""


def float_share(candidate: Candidate, layers: Collection[Layer]) -> float:
    """Return the share of the layers' weights that the candidate leaves in float, by bytes.

    A weight that several layers read counts once.
    """
    precisions = dict(candidate.precisions)
    weights = {layer.weight or layer.name: layer for layer in layers}
    left = [
        each.weight_bytes
        for each in weights.values()
        if precisions.get(each.name) in (FLOAT16, FLOAT32)
    ]
    return sum(left) / max(sum(each.weight_bytes for each in weights.values()), 1)


def with_float_shares(trials: Sequence[Trial], layers: Collection[Layer]) -> list[Trial]:
    """Return the trials with this figure among their metrics."""
    return [
        replace(each, metrics={**each.metrics, FLOAT_SHARE: float_share(each.candidate, layers)})
        for each in trials
    ]
