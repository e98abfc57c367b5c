"""Several schemes of static quantization: a study compares them before it excludes layers."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, nearest
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Layer, Learned, Model, Ranges, Samples

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "int8 per channel": {},
    "int8 per channel, int32 bias": {"quantize_bias": True},
    "uint8 per channel": {"weight_type": "uint8"},
    "7 bits per channel": {"reduce_range": True},
    "int8 per tensor": {"per_channel": False},
    "uint8 per tensor": {"per_channel": False, "weight_type": "uint8"},
    "7 bits per tensor": {"per_channel": False, "reduce_range": True},
}
"""Options of the static quantizer, by the name of the scheme."""

_DECIDED = {"per_channel", "weight_type", "reduce_range", "quantize_bias", "session"}

KERNELS: Mapping[str, Mapping[str, str]] = {
    "safe": {"session.x64quantprecision": "1"},
    "fast": {"session.x64quantprecision": "0"},
}
"""Session options, by the integer kernels they select: on x86 without VNNI, fast ones saturate."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class AutoQuantizer:
    """Static quantization in one of several schemes; each candidate names its scheme.

    A scheme is a way to quantize weights and biases, and the integer kernels that run it.
    `options` are options of the static quantizer, used in all schemes.
    """

    name: str = "auto"
    samples: Annotated[int, Field(ge=1)] = 16
    bases: Annotated[int, Field(ge=1)] = 2
    only: list[str] | None = None
    kernels: Annotated[list[Literal["safe", "fast"]], Field(min_length=1)] = field(
        default_factory=lambda: ["safe", "fast"]
    )
    exclude: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make a quantizer for each scheme."""
        chosen = list(SCHEMES) if self.only is None else self.only
        for name in chosen:
            if name not in SCHEMES:
                raise ConfigError(
                    f"quantization.only names {name!r}, which is no scheme"
                    f"{nearest(name, SCHEMES)}. Choose from {'; '.join(SCHEMES)}."
                )
        if not chosen:
            raise ConfigError("quantization.only leaves no scheme: name one, or leave it out.")
        if decided := sorted(_DECIDED & set(self.options)):
            raise ConfigError(
                f"quantization.options has {', '.join(decided)}, which the schemes decide. Choose "
                "schemes with quantization.only, or use quantization=static."
            )
        common = {**self.options, "name": self.name, "exclude": self.exclude}
        self._schemes = {
            f"{name}, {kernel}": StaticQuantizer(
                **{**common, **SCHEMES[name], "session": dict(KERNELS[kernel])}
            )
            for name in chosen
            for kernel in self.kernels
        }
        self._first = next(iter(self._schemes.values()))

    @property
    def schemes(self) -> Mapping[str, StaticQuantizer]:
        """The ways to quantize, by the name that candidates have as their scheme."""
        return self._schemes

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have."""
        return self._first.precisions

    @property
    def batch_invariant(self) -> bool:
        """The ranges are fixed, so a sample's outputs do not depend on its batch."""
        return True

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model as all schemes take it, and its layers."""
        return self._first.prepare(model)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the ranges of the activations, which do not depend on the scheme."""
        return self._first.calibrate(model, samples)

    def learn(self, model: Model, ranges: Ranges, samples: Samples) -> Learned:
        """Return what suits these samples in each of the schemes."""
        first = self._first
        if not first.feedback:
            return {}
        # Kernels make no difference to weights.
        schemes = {repr(replace(each, session={})): each for each in self._schemes.values()}
        ways = [each.roundings(model, ranges) for each in schemes.values()]
        others = {name: rounding for way in ways for name, rounding in way.items()}
        return first.learn(model, ranges, samples, others)

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model of this candidate in its scheme, or in the first if it names none."""
        return self._scheme_of(candidate).quantize(model, ranges, candidate)

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the same with stored weights as they are once they are unpacked."""
        return self._scheme_of(candidate).preview(model, ranges, candidate)

    def _scheme_of(self, candidate: Candidate) -> StaticQuantizer:
        if candidate.scheme and candidate.scheme not in self._schemes:
            known = "; ".join(self._schemes)
            raise ConfigError(
                f"quantization=auto has no scheme {candidate.scheme!r}"
                f"{nearest(candidate.scheme, self._schemes)}. Choose from {known}."
            )
        return self._schemes.get(candidate.scheme, self._first)

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how many bytes of the model's file a layer takes in this precision."""
        return self._first.stored_bytes(layer, precision)
