"""Dynamic quantization: integer weights; activations are quantized during inference."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, Literal

import onnx
from onnxruntime.quantization.quant_utils import QuantizationMode, QuantType
from onnxruntime.quantization.registry import IntegerOpsRegistry
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import QuantizationError
from seqto.graph.files import compact
from seqto.graph.layers import gemm_to_matmul, weight_layers
from seqto.graph.links import sort_nodes
from seqto.graph.weights import RAISED, own_weights, stored_bytes
from seqto.quantizers.known import Known, Memory
from seqto.quantizers.learned_weights import kinds_of
from seqto.quantizers.learning import RoundedWeight, learn_weights, roundings_of
from seqto.quantizers.ort import (
    QUANT_TYPES,
    WEIGHT_OPS,
    find_layers,
    in_precisions,
    left_by_ort,
    never_quantized,
    nodes_to_exclude,
    only_stored,
    require_operations,
    require_precisions,
    to_store,
    with_shapes,
    with_storage,
)
from seqto.quantizers.reuse import ReusingONNXQuantizer
from seqto.types import (
    CODED_STEPS,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    Candidate,
    Layer,
    Learned,
    Model,
    Ranges,
    Samples,
)

_INTEGER_OPS = set(IntegerOpsRegistry) - {"Gather"}
"""What ORT gets to quantize. It would quantize tables per tensor: here each row has a scale."""

_GEMM = ("MatMul", "Gemm")
"""What a Gemm may be after the preparation: one that scales stays as it is."""

_INTEGER_BYTES = 1000
"""About how many bytes the names and nodes around an integer layer take."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class DynamicQuantizer:
    """ONNX Runtime's dynamic quantizer: integer operations, nothing to calibrate.

    Layers that have no integer form, such as tables and GRUs, are stored in fewer bits.
    """

    name: str = "dynamic"
    per_channel: bool = False
    # On CPUs, ORT's ConvInteger takes only unsigned weights.
    weight_type: Literal["int8", "uint8"] = "uint8"
    weight_symmetric: bool | None = None
    reduce_range: bool = False
    op_types: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    block_size: Annotated[int, Field(ge=1)] = 32
    feedback: bool = True
    extra_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse operations that ORT has no integer form of."""
        require_operations(self.op_types, {*IntegerOpsRegistry, *WEIGHT_OPS})
        self._memory = Memory()

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have."""
        return (*CODED_STEPS, INT4, INT8, FLOAT16, FLOAT32)

    @property
    def batch_invariant(self) -> bool:
        """A batch shares one range for its activations, so its samples depend on each other."""
        return False

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model with Gemm as MatMul, and its layers."""
        # ORT would do this itself under another node name, and exclusions would miss it.
        prepared = with_shapes(gemm_to_matmul(model))
        exclude = self._exclude(weight_layers(prepared, self._layer_ops()))
        layers = find_layers(prepared, self._layer_ops(), exclude, _INTEGER_OPS)
        return prepared, with_storage(prepared, layers, self.block_size)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return no ranges: they are found during inference."""
        return {}

    def learn(self, model: Model, ranges: Ranges, samples: Samples) -> Learned:
        """Return how to round weights so that the outputs suit these samples."""
        if not self.feedback:
            return {}
        layers = {each.name for each in weight_layers(model, self._layer_ops())}
        others = self._roundings(model, ranges)
        return learn_weights(model, layers, samples, others)

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model with integer operations in the int8 layers; the others run in float."""
        return self._made(model, ranges, candidate)

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the same with stored weights as they are once they are unpacked."""
        return self._made(model, ranges, candidate, plainly=True)

    def _made(
        self, model: Model, ranges: Ranges, candidate: Candidate, plainly: bool = False
    ) -> Model:
        require_precisions(candidate, self.precisions, self.name)
        known = self._memory.of(model, repr(self))
        only = known.once("only", lambda: self._only_stored(known.model))
        stored = to_store(candidate, only)
        if RAISED & {*stored.values()}:
            model = known.raised(with_shapes)
        proto = model.copy_proto()
        weights = known.weights(self.block_size, self.feedback)
        precisions = dict(candidate.precisions)
        weights.correct(proto, precisions, kinds_of(precisions, INT8))
        # ORT would make all layers that share a weight read its quantized form.
        own_weights(proto, stored)
        if in_precisions(candidate, (INT8,)).keys() - only:
            never = known.once("never", lambda: self._never(known.model))
            excluded = nodes_to_exclude(known.links(model), candidate, never, only)
            proto = self._with_integers(known, model, proto, excluded)
            stored |= left_by_ort(proto.graph, candidate)
        known.store(proto, stored, weights, plainly)
        return Model(model.name, compact(proto, brief=plainly))

    def _with_integers(
        self, known: Known, model: Model, proto: onnx.ModelProto, excluded: list[str]
    ) -> onnx.ModelProto:
        """Return the model with integer operations for all layers that are not excluded."""
        try:
            quantizer = ReusingONNXQuantizer(
                known,
                proto,
                self.per_channel,
                self.reduce_range,
                QuantizationMode.IntegerOps,
                False,
                QUANT_TYPES[self.weight_type],
                QuantType.QUInt8,
                None,
                [],
                excluded,
                [op for op in self._layer_ops() if op in _INTEGER_OPS],
                self._options(),
            )
            quantizer.quantize_model()
            # ORT sorts nodes only when it saves a file; unsorted, the graph is not valid ONNX.
            quantizer.model.topological_sort()
            sort_nodes(quantizer.model.model.graph)
        except Exception as error:  # ORT's own errors have no common base but Exception.
            raise QuantizationError(
                f"ONNX Runtime cannot quantize model {model.name!r} dynamically: {error}. "
                "Try quantization.op_types or quantization.exclude."
            ) from error
        made: onnx.ModelProto = quantizer.model.model
        return made

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how many bytes of the model's file a layer takes in this precision."""
        if precision != INT8 or layer.only_stored:
            return stored_bytes(layer, precision, self.block_size)
        outputs, *values = layer.shape
        # A channel has a scale of four bytes and a zero point of one or two.
        fine = self.per_channel and layer.op_type in ("LSTM", "MatMul")
        scales = outputs * 6 * len(values) if fine else 0
        return outputs * sum(values) + scales + _INTEGER_BYTES

    def _roundings(self, model: Model, ranges: Ranges) -> dict[str, RoundedWeight]:
        """Return how ORT rounds the weights of int8 layers, under the name of this way."""
        every = {each.name for each in weight_layers(model, self._layer_ops())}
        return roundings_of(self, model, ranges, every - self._never(model), INT8)

    def _never(self, model: Model) -> set[str]:
        layers = weight_layers(model, self._layer_ops())
        return never_quantized(layers, self._exclude(layers))

    def _only_stored(self, model: Model) -> frozenset[str]:
        return only_stored(model, weight_layers(model, self._layer_ops()), _INTEGER_OPS)

    def _exclude(self, layers: Sequence[Layer]) -> list[str]:
        # Nearly every Gemm is a MatMul by now: op:Gemm means both, as in op_types.
        here = [f"op:{op}" for op in _GEMM if op in {layer.op_type for layer in layers}]
        words = [here or [word] if word == "op:Gemm" else [word] for word in self.exclude]
        return [each for some in words for each in some]

    def _layer_ops(self) -> list[str]:
        # Nearly every Gemm is a MatMul by now, so Gemm in op_types means both.
        asked = [_GEMM if op == "Gemm" else (op,) for op in self.op_types or WEIGHT_OPS]
        return list(dict.fromkeys(op for some in asked for op in some))

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"MatMulConstBOnly": True}
        if self.weight_symmetric is not None:
            options["WeightSymmetric"] = self.weight_symmetric
        return options | self.extra_options
