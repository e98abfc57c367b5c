"""The paper's layer analysis: how far quantization moves each layer's output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Annotated

import numpy as np
from onnxruntime.quantization.quant_utils import QUANT_INPUT_SUFFIX
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.graph.clamps import FREE, bounds_behind
from seqto.graph.inner import dequantized, first_output
from seqto.graph.layers import weight_layers
from seqto.graph.links import Links
from seqto.protocols import Quantizer, Task, previewed
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.sensitivity.noise import Noise, together
from seqto.sensitivity.ranking import errors, per_saved_byte, ranked, shares
from seqto.sensitivity.stability import FIRST_HALF, SECOND_HALF, in_halves
from seqto.sensitivity.taps import Taps
from seqto.types import INT8, Candidate, Layer, LayerScore, Model, Observed, Ranges, Samples


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class PaperSensitivity:
    """The weighted mean of `qdq_err` and `xmodel_err`, each normalized to 0..1.

    `qdq_err` compares a layer's output before and after its own quantization inside the fully
    quantized model; `xmodel_err` compares it with the float model's. Both are signal-to-noise
    ratios in dB, as ORT's qdq_loss_debug has them: a high ratio is a small error, so the sign
    is flipped before they are normalized. A Relu behind a layer becomes part of its quantization:
    outputs are compared as the Relu leaves them, else what it cuts off would count as rounding.

    The papers' published tool does neither. With `published` the ratios are its own, and the
    layer that is hurt least comes first.
    """

    name: str = "paper"
    qdq_weight: Annotated[float, Field(ge=0)] = 0.5
    xmodel_weight: Annotated[float, Field(ge=0)] = 0.5
    samples: Annotated[int, Field(ge=1)] = 32
    per_byte: bool = False
    published: bool = False

    def __post_init__(self) -> None:
        """Refuse two weights of 0, which would rank nothing."""
        if self.qdq_weight + self.xmodel_weight == 0:
            raise ConfigError(
                "sensitivity.qdq_weight and sensitivity.xmodel_weight are both 0: "
                "nothing would rank the layers. Give at least one a positive weight."
            )

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
        if not ranges:
            # Nothing to compare inside a dynamically quantized model: analyse its static twin.
            quantizer = _static_twin(model, layers, quantizer)
            ranges = quantizer.calibrate(model, samples)
        full = Candidate.excluding([layer.name for layer in layers], [])
        quantized = previewed(quantizer, model, ranges, full)
        tensors = _matching(model, quantized, layers, clamped=not self.published)
        first, second = _measure(model, quantized, tensors, samples, self.samples)
        noises = {name: first[name].with_more(second[name]) for name in first}
        qdq, xmodel = _errors(noises)
        harms, scores = self._harms(noises), self._scores(layers, noises)
        details = {
            name: {
                "qdq_err": qdq[name],
                "xmodel_err": xmodel[name],
                "qdq_sqnr_db": noise.qdq.decibels,
                "xmodel_sqnr_db": noise.xmodel.decibels,
            }
            for name, noise in noises.items()
        }
        if min(self.samples, len(samples)) > 1:
            for half, its in ((FIRST_HALF, first), (SECOND_HALF, second)):
                for name, score in self._scores(layers, its).items():
                    details[name][half] = score
        return ranked(
            LayerScore(layer, scores[layer.name], details[layer.name], {INT8: harms[layer.name]})
            for layer in layers
        )

    def _scores(
        self, layers: Sequence[Layer], noises: Mapping[str, "_LayerNoise"]
    ) -> dict[str, float]:
        harms = self._harms(noises)
        if self.published:
            harms = {name: 1 - harm for name, harm in harms.items()}
        return shares(per_saved_byte(harms, layers)) if self.per_byte else harms

    def _harms(self, noises: Mapping[str, "_LayerNoise"]) -> dict[str, float]:
        """Return the weighted mean of both errors."""
        qdq, xmodel = _errors(noises)
        total = self.qdq_weight + self.xmodel_weight
        return {
            name: (self.qdq_weight * qdq[name] + self.xmodel_weight * xmodel[name]) / total
            for name in noises
        }


def _errors(noises: Mapping[str, "_LayerNoise"]) -> tuple[dict[str, float], dict[str, float]]:
    """Return qdq_err and xmodel_err: 0 for the highest ratio and 1 for the lowest."""
    return (
        errors({name: -each.qdq.decibels for name, each in noises.items()}),
        errors({name: -each.xmodel.decibels for name, each in noises.items()}),
    )


def _static_twin(model: Model, layers: Sequence[Layer], quantizer: Quantizer) -> StaticQuantizer:
    """Return a static quantizer of just these layers, per channel if this quantizer is."""
    op_types = sorted({layer.op_type for layer in layers})
    names = {layer.name for layer in layers}
    never = [each.name for each in weight_layers(model, op_types) if each.name not in names]
    fine = quantizer.per_channel if isinstance(quantizer, DynamicQuantizer) else True
    return StaticQuantizer(op_types=op_types, exclude=never, per_channel=fine, feedback=False)


@plain_dataclass
class _LayerNoise:
    """The noise of a layer's output: against before its Q/DQ pair, and against the float model."""

    qdq: Noise = field(default_factory=Noise)
    xmodel: Noise = field(default_factory=Noise)

    def with_more(self, other: "_LayerNoise") -> "_LayerNoise":
        """Return the noise of both."""
        return _LayerNoise(together([self.qdq, other.qdq]), together([self.xmodel, other.xmodel]))


@plain_dataclass(frozen=True)
class _Tensors:
    """The names of a layer's output: before and after its Q/DQ pair, and in the float model.

    `bounds` are those of a Relu or Clip behind the layer.
    """

    before: str
    after: str
    reference: str
    bounds: tuple[float, float]


def _silence(layers: Iterable[str]) -> dict[str, _LayerNoise]:
    """Return a record without noise for each layer."""
    return {name: _LayerNoise() for name in layers}


def _measure(
    model: Model, quantized: Model, tensors: Mapping[str, _Tensors], samples: Samples, count: int
) -> tuple[dict[str, _LayerNoise], dict[str, _LayerNoise]]:
    """Return the noise of the layers in the first and in the second half of the samples."""
    in_quantized = sorted({name for each in tensors.values() for name in (each.before, each.after)})
    in_float = sorted({each.reference for each in tensors.values()})
    quantized_taps, float_taps = Taps(quantized, in_quantized), Taps(model, in_float)
    halves = _silence(tensors), _silence(tensors)
    for half, inputs in in_halves(halves, samples, count):
        found, wanted = quantized_taps.run(inputs), float_taps.run(inputs)
        for name, each in tensors.items():
            before, after = found[each.before], found[each.after]
            half[name].qdq.add(np.clip(before, *each.bounds), np.clip(after, *each.bounds))
            half[name].xmodel.add(wanted[each.reference], after)
    return halves


def _matching(
    model: Model, quantized: Model, layers: Sequence[Layer], clamped: bool
) -> dict[str, _Tensors]:
    """Return where each layer's output is found, and what bounds it if that is to be `clamped`."""
    given, links = Links(model.proto.graph), Links(quantized.proto.graph)
    # A table's lookup became other operations, but its output keeps its name.
    floats = {node.name: node for node in given.nodes}
    nodes = floats | {node.name: node for node in links.nodes}
    found = {}
    for layer in layers:
        before = first_output(nodes[layer.name])
        reference = before.removesuffix(QUANT_INPUT_SUFFIX)
        after = dequantized(links, before)
        if given.maker(reference) is not None:
            # Without a Q/DQ pair the output is not quantized: before and after are the same.
            node = floats[layer.name]
            bounds = bounds_behind(model.proto.graph, given, node) if clamped else FREE
            found[layer.name] = _Tensors(before, after or before, reference, bounds)
    return found
