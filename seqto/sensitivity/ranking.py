"""Makes the harms of layers comparable: per byte saved, on a common scale, in order."""

from collections.abc import Iterable, Mapping, Sequence

from seqto.types import Layer, LayerScore

SAVED_SHARE = 3 / 4
"""The share of a float32 weight that 8 bits save."""

Harms = Mapping[str, float]
"""The harm of quantizing each layer, by its name."""


def per_saved_byte(harms: Harms, layers: Sequence[Layer]) -> dict[str, float]:
    """Return the harms divided by the bytes that quantizing each layer saves."""
    return {
        layer.name: harms[layer.name] / max(layer.weight_bytes * SAVED_SHARE, 1) for layer in layers
    }


def shares(harms: Harms) -> dict[str, float]:
    """Return the harms scaled so that the largest is 1; all 0 if there is no harm."""
    largest = max(harms.values())
    return {name: harm / largest if largest > 0 else 0.0 for name, harm in harms.items()}


def ranked(scores: Iterable[LayerScore]) -> tuple[LayerScore, ...]:
    """Return the scores, the most sensitive layer first; equal ones stay in the graph's order."""
    return tuple(sorted(scores, key=lambda each: -each.score))


def errors(harms: Harms) -> dict[str, float]:
    """Return harms in dB scaled from 0 for the least to 1 for the largest."""
    low, high = min(harms.values()), max(harms.values())
    spread = (high - low) or 1.0
    return {name: (harm - low) / spread for name, harm in harms.items()}
