"""ONNX Runtime's quantizers, which compute nothing twice.

Nearly all their time goes into weights, channel by channel, and the next candidate needs the same
ones again. What these classes return is to the bit what their bases return.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization.base_quantizer import QuantizationParams
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from seqto.graph.layers import FLOAT_TYPES
from seqto.quantizers.memory import Known


class ReusingQDQQuantizer(QDQQuantizer):
    """The static quantizer; `known` is of its model and options."""

    model: ONNXModel
    tensors_to_quantize: dict[str, Any]

    def __init__(self, known: Known, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.model = _QuickModel(self.model.model)
        self._known = known

    def _get_tensor_type(self, tensor_name: str) -> Any:
        # ORT goes through all initializers, though it has them by name; for activations in vain.
        weight = self.initializers.get(tensor_name)
        value = self.value_infos.get(tensor_name)
        if weight is None and value is not None and value.type.HasField("tensor_type"):
            return value.type.tensor_type.elem_type
        return super()._get_tensor_type(tensor_name) if weight is None else weight.data_type

    def _is_tensor_quantizable(self, tensor_name: str) -> bool:
        known = tensor_name in self.initializers or tensor_name in self.value_infos
        if known:
            return self._get_tensor_type(tensor_name) in FLOAT_TYPES
        return bool(super()._is_tensor_quantizable(tensor_name))

    def _calc_initializer_quant_params(self) -> dict[str, QuantizationParams]:
        wanted = self.tensors_to_quantize
        keys = {
            name: ("parameters", name, info.tensor_type, info.axis) for name, info in wanted.items()
        }
        self.tensors_to_quantize = {
            name: info for name, info in wanted.items() if keys[name] not in self._known.values
        }
        found = super()._calc_initializer_quant_params()
        self.tensors_to_quantize = wanted
        for name, key in keys.items():
            # Activations have none.
            self._known.values.setdefault(key, found.get(name))
        # Copies, as ORT changes scales for the sake of biases.
        return {
            name: _copy(known)
            for name, key in keys.items()
            if isinstance(known := self._known.values[key], QuantizationParams)
        }

    def _adjust_weight_scale_for_int32_bias(
        self,
        input_scale: np.ndarray,
        weight_scale: np.ndarray,
        weight_name: str,
        bias_tp: onnx.TensorProto,
        is_per_channel: bool,
    ) -> tuple[bool, np.ndarray | None]:
        adjust = super()._adjust_weight_scale_for_int32_bias
        scales = map(_content, (input_scale, weight_scale))
        # The bias itself, as ORT numbers the copies of shared ones for each candidate anew.
        key = ("adjusted", weight_name, bias_tp.SerializeToString(), *scales)
        changed, scale = self._known.once(
            key,
            lambda: adjust(input_scale, weight_scale.copy(), weight_name, bias_tp, is_per_channel),
        )
        return changed, None if scale is None else scale.copy()

    def _add_qdq_nodes_for_initializer(self, weight_proto: onnx.TensorProto) -> None:
        parameters = self.initializer_quant_params[weight_proto.name]
        contents = (_content(value) for _, value in sorted(parameters.data.items()))
        key = ("quantized", weight_proto.name, *contents)
        known = self._known.values.get(key)
        if known is None or parameters.get("block_size"):
            super()._add_qdq_nodes_for_initializer(weight_proto)
            added = self.model.initializer()[-1]
            if not self.add_qdq_pair_to_weight:
                self._known.values[key] = onnx.TensorProto.FromString(added.SerializeToString())
        else:
            # ORT gets a single value to quantize in place of the weight.
            super()._add_qdq_nodes_for_initializer(_stand_in(weight_proto))
            self.model.initializer()[-1].CopyFrom(known)


class ReusingONNXQuantizer(ONNXQuantizer):
    """The dynamic quantizer; `known` is of its model and options."""

    def __init__(self, known: Known, *arguments: Any) -> None:
        self._known = known
        super().__init__(*arguments)

    def quantize_initializer_impl(self, weight: onnx.TensorProto, *options: Any) -> Any:
        """Return the names of the quantized weight, its zero point and its scale."""
        quantize = super().quantize_initializer_impl
        key = ("tensor", weight.name, *options)
        return self._added_once(key, lambda: quantize(weight, *options))

    def quantize_weight_per_channel_impl(self, weight_name: str, *options: Any) -> Any:
        """Return the names of the quantized weight, its zero point and its scale."""
        quantize = super().quantize_weight_per_channel_impl
        key = ("channels", weight_name, *options)
        return self._added_once(key, lambda: quantize(weight_name, *options))

    def _added_once(self, key: tuple[Any, ...], quantize: Callable[[], Any]) -> Any:
        """Return what `quantize` returns; the initializers that it added are added again."""
        initializers = self.model.initializer()

        def compute() -> tuple[Any, list[bytes]]:
            before = len(initializers)
            names = quantize()
            return names, [each.SerializeToString() for each in initializers[before:]]

        if key not in self._known.values:
            return self._known.once(key, compute)[0]
        names, added = self._known.once(key, compute)
        initializers.extend(map(onnx.TensorProto.FromString, added))
        return names


class _QuickModel(ONNXModel):
    """ORT's own wrapper of a model, without its searches through all tensors and inputs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self._names = {each.name for each in model.graph.initializer}

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Add an initializer, unless there is one of its name."""
        if tensor.name not in self._names:
            self.initializer_extend([tensor])

    def remove_initializer(self, tensor: onnx.TensorProto) -> None:
        """Take an initializer out."""
        super().remove_initializer(tensor)
        self._names.discard(tensor.name)

    def initializer_extend(self, inits: list[onnx.TensorProto]) -> None:
        """Add these initializers."""
        # ORT goes through all that are there, in search of NaN in 8-bit floats.
        self.model.graph.initializer.extend(inits)
        self._names.update(each.name for each in inits)

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """Return an initializer by name."""
        # It is mostly one that was just added.
        return next((each for each in reversed(self.initializer()) if each.name == name), None)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Make all nodes that read the old tensor read the new one."""
        for node in self.model.graph.node:
            if old_input_name in node.input:
                self.replace_node_input(node, old_input_name, new_input_name)


def _copy(parameters: QuantizationParams) -> QuantizationParams:
    return QuantizationParams(
        **{
            key: value.copy() if isinstance(value, np.ndarray) else value
            for key, value in parameters.data.items()
        }
    )


def _content(value: Any) -> Any:
    """Return what tells this value from another."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _stand_in(weight: onnx.TensorProto) -> onnx.TensorProto:
    """Return a tensor of the same name, type and rank that has a single value."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    return numpy_helper.from_array(np.zeros([1] * len(weight.dims), dtype), weight.name)
