"""How long candidates take: the times of a model's operations, and of the boundaries between them.

A layer takes its own time in each precision. Where one side of a tensor computes with integers and
the other with floats, the runtime converts the tensor, which takes time for each of its elements.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seqto.types.candidates import Candidate
from seqto.types.precisions import FLOAT32


@dataclass(frozen=True)
class KernelTime:
    """A kernel as a device ran it: its milliseconds, and what it computes.

    `nodes` are the model's nodes that it runs; kernels that the runtime inserts to convert tensors
    run none. `reads` are the kernels whose outputs it reads.
    """

    name: str
    op_type: str
    ms: float
    nodes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    passes_integers: bool = False
    """Whether its first output consists of integers of 8 or 16 bits."""


Profile = Sequence[KernelTime]
"""The kernels of a model, in the order in which they ran."""


@dataclass(frozen=True)
class TimedLayer:
    """A layer's milliseconds in each precision; in those of `integers` it passes on integers.

    So it counts where its tensors are floats, but have to be laid out otherwise.
    """

    name: str
    ms: Mapping[str, float]
    integers: tuple[str, ...] = ()

    def scaled(self, factor: float) -> "TimedLayer":
        """Return the same with times that are so many times as long."""
        return replace(self, ms={name: factor * each for name, each in self.ms.items()})


@dataclass(frozen=True)
class TimedOperation:
    """The milliseconds of an operation without weights, on floats and on integers.

    It runs on integers if a layer beside it does: the nearest before it or behind it. Where
    `integer_ms` is None it never does.
    """

    name: str
    float_ms: float = 0.0
    integer_ms: float | None = 0.0
    before: tuple[str, ...] = ()
    """The layers and operations whose outputs it reads."""
    after: tuple[str, ...] = ()
    """The layers and operations that read its output."""

    def time(self, on_integers: bool) -> float:
        """Return its milliseconds."""
        return self.float_ms if self.integer_ms is None or not on_integers else self.integer_ms

    def scaled(self, factor: float) -> "TimedOperation":
        """Return the same with times that are so many times as long."""
        integer_ms = None if self.integer_ms is None else factor * self.integer_ms
        return replace(self, float_ms=factor * self.float_ms, integer_ms=integer_ms)


@dataclass(frozen=True)
class Passage:
    """A tensor between a layer or operation and those that read it."""

    maker: str
    readers: tuple[str, ...]
    elements: int


@dataclass(frozen=True)
class Rates:
    """What conversions take: milliseconds for each element, and for each conversion."""

    quantize: float = 0.0
    dequantize: float = 0.0
    each: float = 0.0

    def scaled(self, factor: float) -> "Rates":
        """Return the same with times that are so many times as long."""
        return Rates(factor * self.quantize, factor * self.dequantize, factor * self.each)


@dataclass(frozen=True)
class Crossings:
    """The conversions of a candidate, in the units of `Rates`: elements, elements, a count."""

    quantized: float = 0.0
    dequantized: float = 0.0
    count: float = 0.0

    def ms(self, rates: Rates) -> float:
        """Return how long these conversions take."""
        return (
            self.quantized * rates.quantize
            + self.dequantized * rates.dequantize
            + self.count * rates.each
        )


@dataclass(frozen=True)
class TimeSpent:
    """The predicted milliseconds of a candidate: in layers and operations, and in conversions."""

    layers_ms: float
    conversions_ms: float

    @property
    def total_ms(self) -> float:
        """All of them."""
        return self.layers_ms + self.conversions_ms


@dataclass(frozen=True)
class LatencyModel:
    """Predicts how long a candidate takes on a device.

    `operations` are in the order of the graph. `fixed_ms` is what every candidate takes besides;
    `error` is by which share predictions were off for mixes that they were not made from.
    """

    layers: tuple[TimedLayer, ...]
    operations: tuple[TimedOperation, ...] = ()
    passages: tuple[Passage, ...] = ()
    rates: Rates = field(default_factory=Rates)
    fixed_ms: float = 0.0
    error: float = 0.0

    def spent(self, precisions: Mapping[str, str]) -> TimeSpent:
        """Return the predicted time with these precisions of the layers."""
        integers = self.on_integers(precisions)
        layers = sum(each.ms[precisions[each.name]] for each in self.layers)
        operations = sum(each.time(each.name in integers) for each in self.operations)
        crossings = self.crossings(integers).ms(self.rates)
        return TimeSpent(self.fixed_ms + layers + operations, crossings)

    def predict(self, candidate: Candidate) -> float:
        """Return the predicted milliseconds of a candidate."""
        return self.spent(dict(candidate.precisions)).total_ms

    @property
    def float_ms(self) -> float:
        """What the float model takes."""
        return self.spent({each.name: FLOAT32 for each in self.layers}).total_ms

    def anchored(self, float_ms: float | None) -> "LatencyModel":
        """Return the same where the float model takes so long, if that is known.

        A machine may be faster or slower by the time that candidates run: what they take of the
        float model's time stays.
        """
        if not float_ms or self.float_ms <= 0:
            return self
        factor = float_ms / self.float_ms
        return replace(
            self,
            layers=tuple(each.scaled(factor) for each in self.layers),
            operations=tuple(each.scaled(factor) for each in self.operations),
            rates=self.rates.scaled(factor),
            fixed_ms=factor * self.fixed_ms,
        )

    def on_integers(self, precisions: Mapping[str, str]) -> set[str]:
        """Return the layers and operations that pass on integers, given the layers' precisions."""
        layers = {each.name for each in self.layers if precisions[each.name] in each.integers}
        behind, ahead = set(layers), set(layers)
        for each in self.operations:
            if not behind.isdisjoint(each.before):
                behind.add(each.name)
        for each in reversed(self.operations):
            if not ahead.isdisjoint(each.after):
                ahead.add(each.name)
        never = {each.name for each in self.operations if each.integer_ms is None}
        return (behind | ahead) - never

    def crossings(self, integers: Collection[str]) -> Crossings:
        """Return the conversions where these layers and operations pass on integers."""
        into = [each for each in self.passages if _enters(each, integers)]
        out_of = [each for each in self.passages if _leaves(each, integers)]
        return Crossings(
            sum(each.elements for each in into),
            sum(each.elements for each in out_of),
            len(into) + len(out_of),
        )

    def as_document(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "LatencyModel":
        """Return what `as_document` was made of."""
        return cls(
            layers=tuple(
                TimedLayer(each["name"], each["ms"], tuple(each["integers"]))
                for each in document["layers"]
            ),
            operations=tuple(
                TimedOperation(
                    each["name"],
                    each["float_ms"],
                    each["integer_ms"],
                    tuple(each["before"]),
                    tuple(each["after"]),
                )
                for each in document["operations"]
            ),
            passages=tuple(
                Passage(each["maker"], tuple(each["readers"]), each["elements"])
                for each in document["passages"]
            ),
            rates=Rates(**document["rates"]),
            fixed_ms=document["fixed_ms"],
            error=document["error"],
        )


def _enters(passage: Passage, integers: Collection[str]) -> bool:
    """Return whether floats have to become integers for a reader."""
    return passage.maker not in integers and any(each in integers for each in passage.readers)


def _leaves(passage: Passage, integers: Collection[str]) -> bool:
    """Return whether integers have to become floats for a reader."""
    return passage.maker in integers and any(each not in integers for each in passage.readers)
