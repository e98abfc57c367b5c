"""Dynamic quantization: integer weights, activations quantized as they come."""

from dataclasses import field
from typing import Any, Literal

from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.quant_utils import QuantizationMode, QuantType
from onnxruntime.quantization.registry import IntegerOpsRegistry
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import QuantizationError
from seqto.graph.layers import gemm_to_matmul
from seqto.quantizers.onnxruntime import (
    QUANT_TYPES,
    find_layers,
    nodes_to_exclude,
    require_operations,
    with_shapes,
)
from seqto.types import Candidate, Layer, Model, Ranges, Samples

WEIGHT_OPS = ("Conv", "MatMul")


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class DynamicQuantizer:
    """ONNX Runtime's dynamic quantizer: ConvInteger and MatMulInteger, nothing to calibrate."""

    name: str = "dynamic"
    per_channel: bool = False
    # ORT's ConvInteger on CPUs takes unsigned weights only.
    weight_type: Literal["int8", "uint8"] = "uint8"
    weight_symmetric: bool | None = None
    reduce_range: bool = False
    op_types: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    extra_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse operations that ORT has no integer form of."""
        require_operations(self.op_types, {*IntegerOpsRegistry, "Gemm"})

    @property
    def batch_invariant(self) -> bool:
        """A batch shares one range for its activations, so its samples depend on each other."""
        return False

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model with Gemm as MatMul, and its layers."""
        # ORT would do this itself under another node name, and exclusions would miss it.
        prepared = with_shapes(gemm_to_matmul(model))
        return prepared, find_layers(prepared, self._quantized_ops(), self.exclude)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return nothing: ranges are found while running."""
        return {}

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model with integer operations in all but the candidate's excluded layers."""
        excluded = nodes_to_exclude(model, candidate, self.exclude)
        try:
            quantizer = ONNXQuantizer(
                model.copy_proto(),
                self.per_channel,
                self.reduce_range,
                QuantizationMode.IntegerOps,
                False,
                QUANT_TYPES[self.weight_type],
                QuantType.QUInt8,
                None,
                [],
                excluded,
                self._quantized_ops(),
                self._options(),
            )
            quantizer.quantize_model()
            # ORT sorts when it saves a file; before that the graph is no valid ONNX.
            quantizer.model.topological_sort()
        except Exception as error:  # ORT's own errors have no common base but Exception.
            raise QuantizationError(
                f"ONNX Runtime cannot quantize model {model.name!r} dynamically: {error}. "
                "Try quantization.op_types or quantization.exclude."
            ) from error
        return Model(model.name, quantizer.model.model)

    def _quantized_ops(self) -> list[str]:
        # A Gemm is a MatMul by now, so who asks for Gemm means MatMul.
        asked = ["MatMul" if op == "Gemm" else op for op in self.op_types or WEIGHT_OPS]
        return list(dict.fromkeys(asked))

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"MatMulConstBOnly": True}
        if self.weight_symmetric is not None:
            options["WeightSymmetric"] = self.weight_symmetric
        return options | self.extra_options
