"""QuantuneV2's layer analysis: the noise at each layer of the fully quantized model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.protocols import Quantizer, Task, previewed
from seqto.sensitivity.noise import Noise, together
from seqto.sensitivity.own_noise import own_noises
from seqto.sensitivity.places import InnerTensors, places_of
from seqto.sensitivity.ranking import errors, per_saved_byte, ranked, shares
from seqto.sensitivity.stability import FIRST_HALF, SECOND_HALF, in_halves
from seqto.sensitivity.told import asked_of, nearest_telling
from seqto.types import (
    CODED_STEPS,
    FLOAT32,
    INT8,
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
    is than that of the layer's input, and `mse` the mean squared error of the output. A Relu or
    Clip behind a layer runs as one with it: its output is that of both.

    The costs of int8 come from these two runs. Where other precisions are to be chosen from, a run
    for each of them, and one for int8, tell what noise the layer adds by itself: that of its
    weights, and of its input where that is rounded.
    """

    name: str = "local"
    metric: Metric = "sqnr"
    samples: Annotated[int, Field(ge=1)] = 32
    precisions: Annotated[list[str] | None, Field(min_length=1)] = None
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
        quantized = previewed(quantizer, model, ranges, full)
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
        costs = {INT8: {name: _cost(self.metric, noise) for name, noise in found.items()}}
        asked = asked_of(quantizer, self.precisions)
        for precision in _compared(asked):
            own = own_noises(
                *(model, layers, quantizer, ranges, samples, self.samples),
                precision,
            )
            costs[precision] = {name: _own_cost(self.metric, noise) for name, noise in own.items()}
        for each in asked:
            telling = next((name for name in costs if name in CODED_STEPS), "")
            if each not in costs:
                times = (CODED_STEPS[each] / CODED_STEPS[telling]) ** 2
                costs[each] = {name: times * cost for name, cost in costs[telling].items()}
        return ranked(
            LayerScore(
                layer,
                scores[layer.name],
                details[layer.name],
                {FLOAT32: 0.0} | {precision: of[layer.name] for precision, of in costs.items()},
            )
            for layer in layers
        )

    def _scores(
        self, layers: Sequence[Layer], noises: Mapping[str, "_LayerNoise"]
    ) -> dict[str, float]:
        harms = _normalised(noises)[self.metric]
        return shares(per_saved_byte(harms, layers)) if self.per_byte else harms


def _compared(asked: Sequence[str]) -> list[str]:
    """Return the precisions to run one by one; none if int8 is the only one below float32.

    One step of coded weights tells of the others.
    """
    coded = [each for each in asked if each in CODED_STEPS]
    others = [each for each in asked if each not in (*coded, INT8)]
    told = [nearest_telling(CODED_STEPS, coded)] if coded else []
    return [INT8, *told, *others] if told or others else []


@plain_dataclass
class _LayerNoise:
    """The noise in a layer's input, and in its output."""

    given: Noise = field(default_factory=Noise)
    made: Noise = field(default_factory=Noise)

    def with_more(self, other: "_LayerNoise") -> "_LayerNoise":
        """Return the noise of both."""
        return _LayerNoise(together([self.given, other.given]), together([self.made, other.made]))


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


def _own_cost(metric: Metric, noise: Noise) -> float:
    """Return the harm of the noise that a layer adds by itself."""
    return noise.mean_square if metric == "mse" else noise.share


def _silence(layers: Sequence[Layer]) -> dict[str, _LayerNoise]:
    """Return a record without noise for each layer."""
    return {layer.name: _LayerNoise() for layer in layers}


def _measure(
    model: Model, quantized: Model, layers: Sequence[Layer], samples: Samples, count: int
) -> tuple[dict[str, _LayerNoise], dict[str, _LayerNoise]]:
    """Return the noise of the layers in the first and in the second half of the samples."""
    places = places_of(model, quantized, layers)
    pairs = [place for each in places.values() for place in (each.given, each.made)]
    float_taps = InnerTensors(model, {place.floating for place in pairs})
    quantized_taps = InnerTensors(quantized, {place.quantized for place in pairs})
    halves = _silence(layers), _silence(layers)
    for half, inputs in in_halves(halves, samples, count):
        wanted, found = float_taps.run(inputs), quantized_taps.run(inputs)
        for name, each in places.items():
            half[name].given.add(wanted[each.given.floating], found[each.given.quantized])
            made = wanted[each.made.floating], found[each.made.quantized]
            half[name].made.add(*map(each.bounded, made))
    return halves
