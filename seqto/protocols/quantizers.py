"""How models are quantized."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from seqto.types import Candidate, Layer, Model, Ranges, Samples


class Quantizer(Protocol):
    """How a model is quantized.

    The same candidate gives the same bytes, in every process; another candidate gives other bytes.
    With every layer in float32 the outputs are the float model's, to the bit. A layer in float32
    keeps its float weights, and only such a layer does. Nothing that is given is changed.

    A ModelError says `'<model>' has no layer to quantize`, and which operations it has; a
    ConfigError `quantization=<name> has no precision 'int7', which layer '<layer>' is to have`,
    and `Choose from ...`.
    """

    name: str

    @property
    def batch_invariant(self) -> bool:
        """False where the outputs for a sample depend on the others in its batch."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """What a layer may be in; `int8` and `float32` are among them."""
        ...

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return how much of the model's file a layer takes in this precision, within 2 %."""
        ...

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model in the form that `quantize` takes, and its quantizable layers.

        It still computes what the float model does; the layers are in the order of the graph.
        """
        ...

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the ranges of the activations, as plain floats; empty where none are needed."""
        ...

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model of this candidate, the same bytes each time."""
        ...


@runtime_checkable
class SeveralSchemes(Protocol):
    """What a quantizer offers besides that has several ways to quantize."""

    samples: int
    """On how many samples they are compared."""
    bases: int
    """How many of them candidates are made from, at the most."""

    @property
    def schemes(self) -> Mapping[str, Quantizer]:
        """The ways, by the name that candidates have as their scheme."""
        ...
