"""The paper's layer analysis: how far quantization moves each layer's output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import Annotated

import numpy as np
from onnxruntime.quantization.quant_utils import QUANT_INPUT_SUFFIX
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.graph.inner import dequantized
from seqto.graph.layers import weight_layers
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.sensitivity.taps import Taps
from seqto.types import Candidate, Layer, LayerScore, Model, Ranges, Samples

# ORT's qdq_loss_debug ends at this ratio of norms too, so that a perfect layer stays finite.
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class PaperSensitivity:
    """The weighted mean of `qdq_err` and `xmodel_err`, each normalized to 0..1.

    `qdq_err` compares a layer's output before and after its own quantization inside the fully
    quantized model; `xmodel_err` compares it with the float model's. Both are signal-to-noise
    ratios in dB, as ORT's qdq_loss_debug has them: a high ratio is a small error, so the sign
    is turned before they are normalized.
    """

    name: str = "paper"
    qdq_weight: Annotated[float, Field(ge=0)] = 0.5
    xmodel_weight: Annotated[float, Field(ge=0)] = 0.5
    samples: Annotated[int, Field(ge=1)] = 32

    def __post_init__(self) -> None:
        """Refuse weights that rank nothing."""
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
    ) -> tuple[LayerScore, ...]:
        """Return the layers, the most hurt first."""
        if not ranges:
            # Nothing to compare inside a dynamically quantized model: analyse its static twin.
            quantizer = _static_twin(model, layers, quantizer)
            ranges = quantizer.calibrate(model, samples)
        full = Candidate.excluding([layer.name for layer in layers], [])
        quantized = quantizer.quantize(model, ranges, full)
        noise = _measure(model, quantized, layers, samples, self.samples)
        qdq = _errors({name: each.qdq_db for name, each in noise.items()})
        xmodel = _errors({name: each.xmodel_db for name, each in noise.items()})
        total = self.qdq_weight + self.xmodel_weight
        scores = [
            LayerScore(
                layer,
                (self.qdq_weight * qdq[layer.name] + self.xmodel_weight * xmodel[layer.name])
                / total,
                {
                    "qdq_err": qdq[layer.name],
                    "xmodel_err": xmodel[layer.name],
                    "qdq_sqnr_db": noise[layer.name].qdq_db,
                    "xmodel_sqnr_db": noise[layer.name].xmodel_db,
                },
            )
            for layer in layers
        ]
        return tuple(sorted(scores, key=lambda each: -each.score))


def _static_twin(model: Model, layers: Sequence[Layer], quantizer: Quantizer) -> StaticQuantizer:
    """Return a static quantizer of just these layers, with weights as fine as this one's."""
    op_types = sorted({layer.op_type for layer in layers})
    names = {layer.name for layer in layers}
    never = [each.name for each in weight_layers(model, op_types) if each.name not in names]
    fine = quantizer.per_channel if isinstance(quantizer, DynamicQuantizer) else True
    return StaticQuantizer(op_types=op_types, exclude=never, per_channel=fine)


@plain_dataclass
class _Noise:
    """Sums of squares over all samples, from which a ratio in dB is made."""

    before: float = 0.0
    qdq_noise: float = 0.0
    float_signal: float = 0.0
    xmodel_noise: float = 0.0

    def add(self, before: np.ndarray, after: np.ndarray, reference: np.ndarray) -> None:
        self.before += _power(before)
        self.qdq_noise += _power(before - after)
        self.float_signal += _power(reference)
        self.xmodel_noise += _power(reference - after)

    @property
    def qdq_db(self) -> float:
        return _decibels(self.before, self.qdq_noise)

    @property
    def xmodel_db(self) -> float:
        return _decibels(self.float_signal, self.xmodel_noise)


@plain_dataclass(frozen=True)
class _Tensors:
    """Where a layer's output is found: before and after its Q/DQ pair, and in the float model."""

    before: str
    after: str
    reference: str


def _measure(
    model: Model, quantized: Model, layers: Sequence[Layer], samples: Samples, count: int
) -> dict[str, _Noise]:
    tensors = _matching(model, quantized, layers)
    in_quantized = sorted({name for each in tensors.values() for name in (each.before, each.after)})
    in_float = sorted({each.reference for each in tensors.values()})
    quantized_taps, float_taps = Taps(quantized, in_quantized), Taps(model, in_float)
    noise = {layer.name: _Noise() for layer in layers}
    for _, inputs in zip(range(count), samples.batches(1), strict=False):
        found, wanted = quantized_taps.run(inputs), float_taps.run(inputs)
        for name, each in tensors.items():
            noise[name].add(found[each.before], found[each.after], wanted[each.reference])
    return noise


def _matching(model: Model, quantized: Model, layers: Sequence[Layer]) -> dict[str, _Tensors]:
    nodes = {node.name: node for node in quantized.proto.graph.node}
    floats = {name for node in model.proto.graph.node for name in node.output}
    found = {}
    for layer in layers:
        before = nodes[layer.name].output[0]
        reference = before.removesuffix(QUANT_INPUT_SUFFIX)
        after = dequantized(quantized, before)
        if reference in floats:
            # Without a Q/DQ pair behind it the output is not quantized: before and after agree.
            found[layer.name] = _Tensors(before, after or before, reference)
    return found


def _errors(decibels: Mapping[str, float]) -> dict[str, float]:
    """Return 0 for the highest ratio and 1 for the lowest."""
    low, high = min(decibels.values()), max(decibels.values())
    spread = (high - low) or 1.0
    return {name: (high - value) / spread for name, value in decibels.items()}


def _power(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _decibels(signal: float, noise: float) -> float:
    ratio = max(np.sqrt(signal), _EPSILON) / max(np.sqrt(noise), _EPSILON)
    return float(20 * np.log10(ratio))
