"""How models are quantized."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from seqto.types import Candidate, Layer, Learned, Model, Ranges, Samples


class Quantizer(Protocol):
    """How a model is quantized.

    The same candidate gives the same bytes, in every process; another candidate gives other bytes.
    With every layer in float32 the outputs are bit-identical to the float model's. Layers in
    float32 keep their float weights, and no others do. Arguments are never changed.

    A ModelError says `'<model>' has no layer to quantize`, and why or which operations it has. A
    ConfigError says `quantization=<name> has no precision 'int7', which layer '<layer>' is to
    have`, and `Choose from ...`.
    """

    name: str

    @property
    def batch_invariant(self) -> bool:
        """False if a sample's outputs depend on the other samples in its batch."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have, including `int8` and `float32`."""
        ...

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return the bytes that a layer takes in the model's file in this precision, within 2 %."""
        ...

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model in the form that `quantize` needs, and its quantizable layers.

        It still computes the same as the float model; the layers are in the order of the graph.
        """
        ...

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the ranges of the activations, as plain floats; empty if none are needed."""
        ...

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model of this candidate, the same bytes each time."""
        ...


@runtime_checkable
class Learns(Protocol):
    """Optional, for a quantizer whose weights are better if it has seen samples.

    `quantize` then gets a model with `learned`; without it, it does as well as it can.
    """

    def learn(self, model: Model, ranges: Ranges, samples: Samples) -> Learned:
        """Return what `quantize` needs to know of the samples; empty if that is nothing.

        Whatever could differ from machine to machine is computed here, and not in `quantize`.
        """
        ...


@runtime_checkable
class Previews(Protocol):
    """Optional, for a quantizer that can show what a candidate computes before it makes the file.

    Layers are ranked and candidates screened by previews.
    """

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return a model with the same outputs as that of `quantize`, bit for bit.

        It is cheaper to make and to load; its size means nothing. Tensors that the float model has
        as well have the same names.
        """
        ...


def previewed(quantizer: Quantizer, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
    """Return the candidate's preview; its model if the quantizer makes no previews."""
    make = quantizer.preview if isinstance(quantizer, Previews) else quantizer.quantize
    return make(model, ranges, candidate)


@runtime_checkable
class SeveralSchemes(Protocol):
    """Optional, for a quantizer with several ways to quantize."""

    samples: int
    """On how many samples the schemes are compared."""
    bases: int
    """At most how many schemes candidates start from."""

    @property
    def schemes(self) -> Mapping[str, Quantizer]:
        """A quantizer for each scheme, by the name that candidates have as `scheme`."""
        ...
