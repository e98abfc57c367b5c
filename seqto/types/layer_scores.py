"""The layers of a model, and how much quantization hurts them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NEGLIGIBLE, RUINED = 1e-3, 0.1
"""Below the first divergence hardly any prediction changes; above the second many do.

The square root of a divergence, in nats, is about five times the share of changed predictions."""


@dataclass(frozen=True)
class Layer:
    """A quantizable node with weights, named by its unique node name.

    `shape` is that of its weight as a matrix: outputs, and values per output; of several weights
    with the same outputs (LSTM), the values of each. Layers of the same `group` must have the same
    precision; layers that share a weight tensor have the same `weight`. A layer that is
    `only_stored` in fewer bits runs in float in every precision. `coded_bytes` are what it takes in
    the model's file in each precision of coded weights: that depends on its values. `steps` are
    those of its weights, in units of their RMS, in each precision that only stores them. `position`
    is its place in the graph among the layers, where that is known.
    """

    name: str
    op_type: str
    weight_bytes: int
    shape: tuple[int, ...] = field(default=(), compare=False)
    group: str = field(default="", compare=False)
    weight: str = field(default="", compare=False)
    only_stored: bool = field(default=False, compare=False)
    coded_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)
    steps: Mapping[str, float] = field(default_factory=dict, compare=False)
    position: int | None = field(default=None, compare=False)

    @property
    def unit(self) -> str:
        """The unit that gets a precision: the layer's group, or the layer itself."""
        return self.group or self.name


@dataclass(frozen=True)
class LayerScore:
    """How much quantization hurts a layer: `score` ranks it, `details` explain the score.

    `costs` predict the harm of each precision, and `sizes` its bytes; both add up over the layers.
    """

    layer: Layer
    score: float
    details: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
