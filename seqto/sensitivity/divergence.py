"""What quantizing one layer alone does to the model's output."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import DeviceError
from seqto.phases import counted
from seqto.protocols import Harm, Quantizer, Task, previewed
from seqto.sensitivity.float_prefixes import SharedPrefixes
from seqto.sensitivity.ranking import per_saved_byte, ranked, shares
from seqto.sensitivity.stability import FIRST_HALF, SECOND_HALF
from seqto.sensitivity.told import asked_of, finer, to_measure, told_by_steps
from seqto.types import (
    FLOAT32,
    Candidate,
    Entry,
    Layer,
    LayerScore,
    Model,
    Observed,
    Outputs,
    Ranges,
    Samples,
    together,
)

_log = logging.getLogger(__name__)

_FEW = 2
"""How many samples show whether a precision does any harm worth measuring."""

_MUCH = 0.03
"""A layer with more than this share of all layers' harm is measured on more samples."""

_LIGHT = 0.5
"""A layer with less than this share of the layers' mean bytes is measured on half as many samples:
what it is given in bits hardly changes a model's size, so that a rough figure will do."""

_RUINED = 0.1
"""A layer that does more than this share of the harm of wrong outputs tells nothing of finer steps:
harm grows with the square of the step only while outputs are about right."""

_ALIKE = 0.05
"""Outputs that are nearly the same for all samples do not tell what is wrong: this share of the
harm of useless ones is taken at least."""

_LITTLE = 0.01
"""A precision with less than this share of the ranking one's harm is measured on few samples."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class DivergenceSensitivity:
    """The harm to the outputs, as the task defines it, when only this layer is quantized.

    For classifiers it is the KL divergence from the float model's outputs. Each layer's costs hold
    the harm of every requested precision; int8 ranks the layers, or the first one if int8 is not
    there. Of the precisions that only store a layer's weights, one is measured: it tells of the
    others by their steps. Where it ruins the outputs, finer ones are measured until one does not.
    """

    name: str = "divergence"
    samples: Annotated[int, Field(ge=1)] = 16
    enough: Annotated[int, Field(ge=1)] | None = 8
    precisions: Annotated[list[str] | None, Field(min_length=1)] = None
    per_byte: bool = True

    def predicting(self, precisions: Sequence[str]) -> "DivergenceSensitivity":
        """Return the same sensitivity for these precisions only."""
        return replace(self, precisions=list(precisions))

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
        asked = asked_of(quantizer, self.precisions)
        runs = SharedPrefixes(model, samples, self.samples, observed)
        reference = list(runs.reference())
        harm = task.harm(_outputs(reference))
        worst = harm.per_sample(_outputs([_ruined(each) for each in reference]))
        wrong = min(worst.mean(), harm.per_sample(_wrong(reference)).mean())
        too_much = _RUINED * max(wrong, _ALIKE * worst.mean())
        ruined: set[tuple[str, str]] = set()
        found: dict[str, dict[str, np.ndarray]] = {layer.name: {} for layer in layers}

        def outputs(layer: Layer, precision: str, after: int = 0) -> Iterator[Entry]:
            alone = _alone(layer, precision, layers)
            return runs.outputs(previewed(quantizer, model, ranges, alone), after)

        light = _LIGHT * np.mean([layer.weight_bytes for layer in layers])
        for layer in counted("ranking layers", layers):
            ranking: np.ndarray | None = None
            enough = self._enough(bool(layer.weight_bytes < light))
            left = to_measure(layer, asked)
            telling = [*left]
            while left:
                precision = left.pop(0)
                # What tells of many others is not measured on a few samples only.
                beside = ranking if precision in telling else None
                try:
                    each = _harm_of(outputs(layer, precision), harm, beside, enough)
                except DeviceError as error:
                    _log.warning(
                        "Layer %s counts as ruined in %s: %s", layer.name, precision, error
                    )
                    ruined.add((layer.name, precision))
                    each = worst
                found[layer.name][precision] = each
                ranking = each if ranking is None else ranking
                if each.mean() > too_much:
                    left += finer(layer, precision, asked)
        for layer, precision in counted("ranking harmful layers", self._unsettled(layers, found)):
            first = found[layer.name][precision]
            if (layer.name, precision) not in ruined and len(first) < len(reference):
                rest = outputs(layer, precision, len(first))
                # Harm is measured from the first sample on: those that are known do not count.
                every = harm.per_sample(_outputs([*reference[: len(first)], *rest]))
                found[layer.name][precision] = np.concatenate([first, every[len(first) :]])
        for layer in layers:
            known = found[layer.name]
            told = told_by_steps(layer, known, asked)
            known |= {each: known[near] * times for each, (near, times) in told.items()}
        return self._ranking(layers, found, asked[0], harm.name)

    def _enough(self, is_light: bool) -> int | None:
        """Return on how many samples a layer is measured at first; None for all."""
        return self.enough if self.enough is None or not is_light else -(-self.enough // 2)

    def _unsettled(
        self, layers: Sequence[Layer], found: Mapping[str, Mapping[str, np.ndarray]]
    ) -> list[tuple[Layer, str]]:
        """Return the layers and precisions that do so much harm that all samples are used.

        They come in the order of the layers: neighbours share the end of the float model.
        """
        if self.enough is None:
            return []
        unsettled: set[tuple[Layer, str]] = set()
        for precision in dict.fromkeys(each for by in found.values() for each in by):
            harms = {
                layer: float(found[layer.name][precision].mean())
                for layer in layers
                if precision in found[layer.name]
            }
            limit = _MUCH * sum(harms.values())
            unsettled |= {(layer, precision) for layer, harm in harms.items() if harm > limit > 0}
        return [
            (layer, precision)
            for layer in layers
            for precision in found[layer.name]
            if (layer, precision) in unsettled
        ]

    def _ranking(
        self,
        layers: Sequence[Layer],
        found: Mapping[str, Mapping[str, np.ndarray]],
        ranking: str,
        measure: str,
    ) -> tuple[LayerScore, ...]:
        """Return the layers' scores from the harm of each precision to each sample."""
        harms = {name: float(by[ranking].mean()) for name, by in found.items()}
        plain, by_byte = shares(harms), shares(per_saved_byte(harms, layers))
        scores = by_byte if self.per_byte else plain
        most = max(len(by[ranking]) for by in found.values())
        return ranked(
            LayerScore(
                layer,
                scores[layer.name],
                {
                    "divergence": plain[layer.name],
                    "divergence_per_byte": by_byte[layer.name],
                    measure: harms[layer.name],
                    **_halves(found[layer.name][ranking], scores[layer.name], most),
                },
                {FLOAT32: 0.0}
                | {precision: float(each.mean()) for precision, each in found[layer.name].items()},
            )
            for layer in layers
        )


def _outputs(entries: Sequence[Entry]) -> Outputs:
    return together(entries, len(entries))


def _ruined(entry: Entry) -> Entry:
    """Return outputs that are of no use."""
    return {
        name: np.full(array.shape, np.nan) if array.dtype.kind == "f" else np.zeros_like(array)
        for name, array in entry.items()
    }


def _wrong(entries: Sequence[Entry]) -> Outputs:
    """Return another sample's outputs for each sample, or useless ones if they have other forms."""
    forms = {tuple((name, np.shape(each)) for name, each in entry.items()) for entry in entries}
    alike = len(forms) == 1 and len(entries) > 1
    return _outputs([*entries[1:], entries[0]] if alike else [_ruined(each) for each in entries])


def _alone(layer: Layer, precision: str, layers: Sequence[Layer]) -> Candidate:
    """Return the candidate with this layer in this precision and all others in float32."""
    return Candidate.of({each.name: FLOAT32 for each in layers} | {layer.name: precision})


def _harm_of(
    outputs: Iterator[Entry],
    harm: Harm,
    ranking: np.ndarray | None,
    enough: int | None,
) -> np.ndarray:
    """Return the harm to each of the first `enough` samples, or to a few if they show little."""
    first = list(islice(outputs, _FEW))
    if ranking is not None:
        few = harm.per_sample(_outputs(first))
        if few.mean() < _LITTLE * ranking[:_FEW].mean():
            return few
    rest = outputs if enough is None else islice(outputs, max(enough - _FEW, 0))
    return harm.per_sample(_outputs([*first, *rest]))


def _halves(harms: np.ndarray, score: float, most: int) -> dict[str, float]:
    """Return the score from each half of the samples, on the scale of the score from all.

    A layer that was measured on fewer samples has none: all that is known is that it does little.
    """
    middle, mean = len(harms) // 2, float(harms.mean())
    if middle == 0 or len(harms) < most:
        return {}
    unit = score / mean if mean > 0 else 0.0
    return {
        FIRST_HALF: float(harms[:middle].mean()) * unit,
        SECOND_HALF: float(harms[middle:].mean()) * unit,
    }
