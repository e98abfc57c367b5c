"""What ONNX Runtime's two quantizers share: options by name, the model's form, exclusions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from onnxruntime.quantization import QuantType
from onnxruntime.quantization.quant_utils import save_and_reload_model_with_shape_infer

from seqto.errors import ConfigError, LayerError, ModelError, nearest
from seqto.graph.layers import weight_layers
from seqto.graph.regions import left_in_float, weightless_regions
from seqto.types import Candidate, Layer, Model

IntegerType = Literal["int8", "uint8", "int16", "uint16"]

QUANT_TYPES: Mapping[str, QuantType] = {
    "int8": QuantType.QInt8,
    "uint8": QuantType.QUInt8,
    "int16": QuantType.QInt16,
    "uint16": QuantType.QUInt16,
}


def require_operations(op_types: Sequence[str] | None, known: Collection[str]) -> None:
    """Raise where an operation to quantize is misspelt: ORT would quantize the others only."""
    for name in op_types or ():
        if name not in known:
            raise ConfigError(
                f"quantization.op_types names {name!r}, which is no operation that can be "
                f"quantized{nearest(name, sorted(known))}. Give ONNX operations, such as Conv."
            )


def with_shapes(model: Model) -> Model:
    """Return the model with the marks of shape inference that ORT's quantizers look for."""
    return Model(model.name, save_and_reload_model_with_shape_infer(model.proto))


def find_layers(
    model: Model, op_types: Collection[str], exclude: Collection[str]
) -> tuple[Layer, ...]:
    """Return the layers that candidates choose from: all but those never to be quantized."""
    layers = weight_layers(model, op_types)
    names = [layer.name for layer in layers]
    unknown = [name for name in exclude if name not in names]
    if unknown:
        raise LayerError(unknown, names, "quantization.exclude")
    chosen = tuple(layer for layer in layers if layer.name not in exclude)
    if layers and not chosen:
        raise ModelError(
            f"model {model.name!r} has no layer left to quantize: quantization.exclude names all "
            f"{len(layers)} of them. Leave at least one out of it."
        )
    if not chosen:
        kinds = ", ".join(sorted(op_types))
        present = ", ".join(sorted({node.op_type for node in model.proto.graph.node})) or "no nodes"
        raise ModelError(
            f"model {model.name!r} has no layer to quantize: none of its nodes is one of {kinds} "
            f"with constant float weights (it has {present}). Choose another model, or check "
            "quantization.op_types and quantization.exclude."
        )
    return chosen


def nodes_to_exclude(model: Model, candidate: Candidate, always: Collection[str]) -> list[str]:
    """Return every node that ORT has to leave alone for this candidate."""
    layers = {name for name, _ in candidate.precisions} | set(always)
    excluded = {*candidate.excluded, *always}
    regions = weightless_regions(model.proto.graph, layers)
    return sorted(excluded) + left_in_float(regions, layers, excluded)
