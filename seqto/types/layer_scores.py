"""The layers of a model, and how much quantization hurts them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NEGLIGIBLE, RUINED = 1e-3, 0.1
"""Divergences below which hardly a prediction changes, and above which many do.

The root of a divergence, in nats, is about five times the share of predictions that change."""


@dataclass(frozen=True)
class Layer:
    """A quantizable node with weights, named by its unique node name.

    `shape` is that of its weight as a matrix: the outputs, and how many values each has. Layers of
    one `group` have to have the same precision; those that read one tensor have the same `weight`.
    """

    name: str
    op_type: str
    weight_bytes: int
    shape: tuple[int, ...] = field(default=(), compare=False)
    group: str = field(default="", compare=False)
    weight: str = field(default="", compare=False)

    @property
    def unit(self) -> str:
        """What gets a precision of its own: its group, or the layer where it is alone."""
        return self.group or self.name


@dataclass(frozen=True)
class LayerScore:
    """How much quantization hurts a layer: `score` ranks, `details` say where it comes from.

    `costs` predict the harm of each precision of this layer, and `sizes` the bytes it then takes;
    both add up over the layers.
    """

    layer: Layer
    score: float
    details: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
