"""QuantuneV2's layer analysis: the noise at each layer of the fully quantized model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Annotated, Literal

from onnxruntime.quantization.quant_utils import QUANT_INPUT_SUFFIX
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.graph.inner import dequantized, first_output
from seqto.graph.links import Links
from seqto.graph.load import input_specs
from seqto.protocols import Quantizer, Task
from seqto.sensitivity.noise import Noise, together
from seqto.sensitivity.ranking import errors, per_saved_byte, ranked, shares
from seqto.sensitivity.stability import FIRST_HALF, SECOND_HALF, in_halves
from seqto.sensitivity.taps import Taps
from seqto.types import (
    FLOAT32,
    INT8,
    Arrays,
    Candidate,
    Layer,
    LayerScore,
    Model,
    Observed,
    Ranges,
    Samples,
)

Metric = Literal["sqnr", "mse", "sqnr_delta"]

_EXACT_DB = 50.0
"""Used for an input without noise, whose ratio is infinite: the ratio of a sine in 8 bits."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class LocalSensitivity:
    """Compares a run of the float model with one of the fully quantized model, both unfused.

    `sqnr` is the signal-to-noise ratio of a layer's output in dB, `sqnr_delta` how much lower it
    is than that of the layer's input, and `mse` the mean squared error of the output.
    """

    name: str = "local"
    metric: Metric = "sqnr"
    samples: Annotated[int, Field(ge=1)] = 32
    per_byte: bool = True

    def score(
        self,
        model: Model,
        layers: Sequence[Layer],
        quantizer: Quantizer,
        ranges: Ranges,
        samples: Samples,
        observed: Observed,
        task: Task,
    ) -> tuple[LayerScore, ...]:
        """Return the layers' scores, the most sensitive layer first."""
        full = Candidate.of({layer.name: INT8 for layer in layers})
        quantized = quantizer.quantize(model, ranges, full)
        first, second = _measure(model, quantized, layers, samples, self.samples)
        found = {name: first[name].with_more(second[name]) for name in first}
        scores, normalised, deltas = self._scores(layers, found), _normalised(found), _deltas(found)
        details = {
            name: {
                "sqnr_db": noise.made.decibels,
                "sqnr_delta_db": deltas[name],
                "mse": noise.made.mean_square,
                **{f"{metric}_err": values[name] for metric, values in normalised.items()},
            }
            for name, noise in found.items()
        }
        if min(self.samples, len(samples)) > 1:
            for half, noises in ((FIRST_HALF, first), (SECOND_HALF, second)):
                for name, score in self._scores(layers, noises).items():
                    details[name][half] = score
        return ranked(
            LayerScore(
                layer,
                scores[layer.name],
                details[layer.name],
                {INT8: _cost(self.metric, found[layer.name]), FLOAT32: 0.0},
            )
            for layer in layers
        )

    def _scores(
        self, layers: Sequence[Layer], noises: Mapping[str, "_LayerNoise"]
    ) -> dict[str, float]:
        harms = _normalised(noises)[self.metric]
        return shares(per_saved_byte(harms, layers)) if self.per_byte else harms


@plain_dataclass
class _LayerNoise:
    """The noise in a layer's input, and in its output."""

    given: Noise = field(default_factory=Noise)
    made: Noise = field(default_factory=Noise)

    def with_more(self, other: "_LayerNoise") -> "_LayerNoise":
        """Return the noise of both."""
        return _LayerNoise(together([self.given, other.given]), together([self.made, other.made]))


@plain_dataclass(frozen=True)
class _Place:
    """Where a tensor is found in the float model and in the quantized one."""

    floating: str
    quantized: str


@plain_dataclass(frozen=True)
class _Places:
    """Where a layer's input and output are found."""

    given: _Place
    made: _Place


def _normalised(noises: Mapping[str, _LayerNoise]) -> dict[Metric, dict[str, float]]:
    """Return each metric, scaled so that the most sensitive layer has 1."""
    return {
        "sqnr": errors({name: -each.made.decibels for name, each in noises.items()}),
        "sqnr_delta": errors(_deltas(noises)),
        "mse": shares({name: each.made.mean_square for name, each in noises.items()}),
    }


def _deltas(noises: Mapping[str, _LayerNoise]) -> dict[str, float]:
    """Return how many dB the ratio falls from each layer's input to its output."""
    return {
        name: (each.given.decibels if each.given.noise else _EXACT_DB) - each.made.decibels
        for name, each in noises.items()
    }


def _cost(metric: Metric, noise: _LayerNoise) -> float:
    """Return the harm as a number that adds up over layers, as dB do not."""
    if metric == "mse":
        return noise.made.mean_square
    if metric == "sqnr":
        return noise.made.share
    return max(noise.made.share - noise.given.share, 0.0)


def _silence(layers: Sequence[Layer]) -> dict[str, _LayerNoise]:
    """Return a record without noise for each layer."""
    return {layer.name: _LayerNoise() for layer in layers}


def _measure(
    model: Model, quantized: Model, layers: Sequence[Layer], samples: Samples, count: int
) -> tuple[dict[str, _LayerNoise], dict[str, _LayerNoise]]:
    """Return the noise of the layers in the first and in the second half of the samples."""
    places = _places(model, quantized, layers)
    pairs = [place for each in places.values() for place in (each.given, each.made)]
    float_taps = _InnerTensors(model, {place.floating for place in pairs})
    quantized_taps = _InnerTensors(quantized, {place.quantized for place in pairs})
    halves = _silence(layers), _silence(layers)
    for half, inputs in in_halves(halves, samples, count):
        wanted, found = float_taps.run(inputs), quantized_taps.run(inputs)
        for name, each in places.items():
            half[name].given.add(wanted[each.given.floating], found[each.given.quantized])
            half[name].made.add(wanted[each.made.floating], found[each.made.quantized])
    return halves


class _InnerTensors:
    """Returns inner tensors of a model; its inputs count as such."""

    def __init__(self, model: Model, names: set[str]) -> None:
        inputs = {spec.name for spec in input_specs(model)}
        self._taps = Taps(model, sorted(names - inputs))

    def run(self, inputs: Arrays) -> Arrays:
        """Return the tensors for these samples, by name."""
        return {**inputs, **self._taps.run(inputs)}


def _places(model: Model, quantized: Model, layers: Sequence[Layer]) -> dict[str, _Places]:
    """Return where the layers' inputs and outputs are found in both models."""
    given, links = Links(model.proto.graph), Links(quantized.proto.graph)
    floats = {node.name: node for node in given.nodes}
    # A layer that became other operations is gone, but its tensors keep their names.
    nodes = floats | {node.name: node for node in links.nodes}
    found = {}
    for layer in layers:
        before, after = floats[layer.name], nodes[layer.name]
        position = next(at for at, name in enumerate(before.input) if name not in given.constants)
        made = first_output(after)
        found[layer.name] = _Places(
            _Place(before.input[position], after.input[position]),
            # Where ORT removes a Relu, the layer writes the Relu's output, named as in float.
            _Place(made.removesuffix(QUANT_INPUT_SUFFIX), dequantized(links, made) or made),
        )
    return found
