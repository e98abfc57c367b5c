"""What makes layers' harms comparable: bytes saved, a common scale, an order."""

from collections.abc import Iterable, Mapping, Sequence

from seqto.types import Layer, LayerScore

SAVED_SHARE = 3 / 4
"""Of a float32 weight, what 8 bits save."""

Harms = Mapping[str, float]
"""How much each layer is hurt, by its name."""


def per_saved_byte(harms: Harms, layers: Sequence[Layer]) -> dict[str, float]:
    """Return the harms divided by the bytes that quantizing each layer saves."""
    return {
        layer.name: harms[layer.name] / max(layer.weight_bytes * SAVED_SHARE, 1) for layer in layers
    }


def shares(harms: Harms) -> dict[str, float]:
    """Return the harms scaled so that the largest is 1; all 0 where nothing is hurt."""
    largest = max(harms.values())
    return {name: harm / largest if largest > 0 else 0.0 for name, harm in harms.items()}


def ranked(scores: Iterable[LayerScore]) -> tuple[LayerScore, ...]:
    """Return the scores, the most hurt first; equal ones stay in the graph's order."""
    return tuple(sorted(scores, key=lambda each: -each.score))


def errors(harms: Harms) -> dict[str, float]:
    """Return the harms from 0 for the least to 1 for the largest: for those in dB."""
    low, high = min(harms.values()), max(harms.values())
    spread = (high - low) or 1.0
    return {name: (harm - low) / spread for name, harm in harms.items()}
