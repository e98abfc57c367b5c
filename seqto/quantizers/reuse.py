"""ONNX Runtime's quantizers, made faster: results are reused, channels are quantized all at once.

The originals spend nearly all their time on weights, channel by channel, and again for the next
candidate. These classes return, bit for bit, what their base classes return.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization.base_quantizer import QuantizationParams
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer, QDQQuantTensorType
from onnxruntime.quantization.quant_utils import (
    TENSOR_NAME_QUANT_SUFFIX,
    compute_data_quant_params,
    get_qmin_qmax_for_qType,
    quantize_nparray,
)

from seqto.graph.layers import FLOAT_TYPES
from seqto.graph.nodes import tensor_names
from seqto.quantizers.known import Known

_INTEGERS = (
    onnx.TensorProto.INT8,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.INT16,
    onnx.TensorProto.UINT16,
)


class ReusingQDQQuantizer(QDQQuantizer):
    """The static quantizer; `known` belongs to its model and options."""

    model: ONNXModel
    tensors_to_quantize: dict[str, Any]

    def __init__(self, known: Known, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known = known

    def adjust_tensor_ranges(self) -> None:
        """Give tensors that only a Relu or Clip reads the range of its output."""
        # ORT's __init__ calls this before anything else that goes through the whole graph.
        self.model = _QuickModel(self.model.model)
        super().adjust_tensor_ranges()

    def _get_tensor_type(self, tensor_name: str) -> Any:
        # ORT would search all initializers, even for an activation, though it has them by name.
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
        for name, info in wanted.items():
            if keys[name] not in self._known.values and self._is_plain(name):
                parameters = self._channel_parameters(name, info)
                if parameters is not None:
                    self._known.values[keys[name]] = parameters
        self.tensors_to_quantize = {
            name: info for name, info in wanted.items() if keys[name] not in self._known.values
        }
        found = super()._calc_initializer_quant_params()
        self.tensors_to_quantize = wanted
        for name, key in keys.items():
            # Activations have no parameters here.
            self._known.values.setdefault(key, found.get(name))
        # Copies, because ORT adjusts scales to fit biases.
        return {
            name: _copy(known)
            for name, key in keys.items()
            if isinstance(known := self._known.values[key], QuantizationParams)
        }

    def is_tensor_per_channel(
        self, tensor_name: str, default_axis: int, op_type: str | None = None
    ) -> tuple[bool, int | None]:
        """Return whether this tensor has a scale per channel, and the axis of its channels."""
        weight = self.initializers.get(tensor_name)
        axis = self.qdq_op_type_per_channel_support_to_axis.get(op_type, default_axis)
        if weight is not None and axis >= len(weight.dims) and self._is_plain(tensor_name):
            # ORT would say so in a warning for each gain of a layer normalization.
            return False, None
        per_channel, found = super().is_tensor_per_channel(tensor_name, default_axis, op_type)
        return bool(per_channel), found

    def _is_plain(self, name: str) -> bool:
        """Return whether this is a weight without special options."""
        return (
            name in self.initializers
            and name not in self.tensor_quant_overrides
            and self.min_real_range is None
            and not getattr(self, "block_size", 0)
        )

    def _channel_parameters(self, name: str, info: Any) -> QuantizationParams | None:
        """Return a weight's parameters, one scale per channel; None if that is left to ORT."""
        if info.tensor_type is not QDQQuantTensorType.WEIGHT or info.axis is None:
            return None
        weight, integer = self.initializers[name], self.weight_qType
        scaled = _symmetric_scales(weight, integer, info.axis, bool(self.reduce_range))
        if scaled is None:
            return None
        zero_point, scale = scaled
        return QuantizationParams(
            zero_point=zero_point,
            scale=scale,
            quant_type=integer,
            axis=info.axis % len(weight.dims),
        )

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
        # By the bias's content: ORT numbers copies of shared ones differently in each candidate.
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
        if known is None and not self.add_qdq_pair_to_weight and self._is_plain(weight_proto.name):
            given = (parameters.get(each) for each in ("axis", "quant_type", "zero_point", "scale"))
            known = self._known.values[key] = _quantized_channels(weight_proto, *given)
        if known is None or parameters.get("block_size"):
            super()._add_qdq_nodes_for_initializer(weight_proto)
            added = self.model.initializer()[-1]
            if not self.add_qdq_pair_to_weight:
                self._known.values[key] = onnx.TensorProto.FromString(added.SerializeToString())
        else:
            # ORT gets a single value to quantize instead of the weight.
            super()._add_qdq_nodes_for_initializer(_stand_in(weight_proto))
            self.model.initializer()[-1].CopyFrom(known)


class ReusingONNXQuantizer(ONNXQuantizer):
    """The dynamic quantizer; `known` belongs to its model and options."""

    def __init__(self, known: Known, *arguments: Any) -> None:
        self._known = known
        super().__init__(*arguments)

    @property
    def model(self) -> ONNXModel:
        """ORT's wrapper of the model."""
        return self._model

    @model.setter
    def model(self, model: ONNXModel) -> None:
        # Each Gemm that can be a MatMul is one. ORT would transpose the weights of the others where
        # they are, for all that share them.
        model.replace_gemm_with_matmul = lambda: None
        self._model = model

    def quantize_initializer_impl(self, weight: onnx.TensorProto, *options: Any) -> Any:
        """Return the names of the quantized weight, its zero point and its scale."""
        quantize = super().quantize_initializer_impl
        key = ("tensor", weight.name, *options)
        return self._added_once(key, lambda: quantize(weight, *options))

    def quantize_weight_per_channel_impl(self, weight_name: str, *options: Any) -> Any:
        """Return the names of the quantized weight, its zero point and its scale."""
        quantize = super().quantize_weight_per_channel_impl
        key = ("channels", weight_name, *options)
        return self._added_once(
            key,
            lambda: self._at_once(weight_name, *options) or quantize(weight_name, *options),
        )

    def _at_once(
        self,
        name: str,
        integer: int,
        axis: int,
        reduce_range: bool = True,
        keep_float_weight: bool = False,
    ) -> tuple[str, str, str] | None:
        """Return the names of what was added for a weight; None if that is left to ORT."""
        weight = self.model.get_initializer(name)
        plain = (
            weight is not None
            and name not in self.tensor_quant_overrides
            and self.min_real_range is None
            and not keep_float_weight
        )
        if not plain or not self.is_weight_symmetric(integer):
            return None
        scaled = _symmetric_scales(weight, integer, axis, bool(self.reduce_range and reduce_range))
        if scaled is None:
            return None
        zero_point, scale = scaled
        quantized = _quantized_channels(weight, axis % len(weight.dims), integer, *scaled)
        if quantized is None:
            return None
        names = quantized.name, f"{name}_zero_point", f"{name}_scale"
        make = onnx.helper.make_tensor
        self.model.initializer_extend(
            [
                make(names[2], weight.data_type, scale.shape, scale.tolist()),
                make(names[1], integer, zero_point.shape, zero_point.tolist()),
                quantized,
            ]
        )
        return names

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
        self._taken = tensor_names(model.graph)
        self._readers: dict[str, list[onnx.NodeProto]] | None = None
        # Who reads and who writes each tensor now; whoever no longer does is not changed by it.
        self._reading: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        self._writing: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            self._note(node)

    def _note(self, node: onnx.NodeProto) -> None:
        for name in {*node.input}:
            self._reading[name].append(node)
        for name in {*node.output}:
            self._writing[name].append(node)

    def input_name_to_nodes(self) -> dict[str, list[onnx.NodeProto]]:
        """Return the nodes that read each tensor."""
        # ORT asks at each Relu and Clip, and up to then has only renamed outputs.
        if self._readers is None:
            self._readers = super().input_name_to_nodes()
        return self._readers

    def add_node(self, node: onnx.NodeProto) -> None:
        """Add a node: from here on ORT also changes what nodes read."""
        self._readers = None
        super().add_node(node)
        self._note(self.model.graph.node[-1])

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Add an initializer, unless there is one of its name."""
        if tensor.name not in self._names:
            self.initializer_extend([tensor])

    def remove_initializer(self, tensor: onnx.TensorProto) -> None:
        """Remove an initializer."""
        super().remove_initializer(tensor)
        self._names.discard(tensor.name)

    def initializer_extend(self, inits: list[onnx.TensorProto]) -> None:
        """Add these initializers."""
        # ORT would also search all present ones for NaN in 8-bit floats.
        self.model.graph.initializer.extend(inits)
        self._names.update(each.name for each in inits)

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        """Return a number after which the next one makes a new name of this prefix."""
        number = int(super().get_largest_initializer_name_suffix(initializer_name_prefix))
        # To ORT, a copy of the bias `conv_2` may get the name of the activation `conv_25`.
        while f"{initializer_name_prefix}{number + 1}" in self._taken:
            number += 1
        return number

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """Return an initializer by name."""
        # Usually it is one that was just added.
        return next((each for each in reversed(self.initializer()) if each.name == name), None)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Make all nodes that read the old tensor read the new one."""
        for node in self._reading.pop(old_input_name, ()):
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_input_of_nodes(
        self, old_input_name: str, new_input_name: str, node_names_set: Collection[str]
    ) -> None:
        """Make the nodes of these names read the new tensor instead of the old one."""
        for node in self._reading[old_input_name]:
            if node.name in node_names_set:
                self.replace_node_input(node, old_input_name, new_input_name)

    def replace_node_input(
        self, node: onnx.NodeProto, old_input_name: str, new_input_name: str
    ) -> None:
        """Make a node read the new tensor instead of the old one."""
        ONNXModel.replace_node_input(node, old_input_name, new_input_name)
        self._reading[new_input_name].append(node)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Make all nodes that write the old tensor write the new one."""
        for node in self._writing.pop(old_output_name, ()):
            self.replace_node_output(node, old_output_name, new_output_name)
            self._writing[new_output_name].append(node)


def _symmetric_scales(
    weight: onnx.TensorProto, integer: int, axis: int, reduce_range: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the zero points and scales of a weight's channels; None if they are left to ORT."""
    rank = len(weight.dims)
    if weight.data_type not in FLOAT_TYPES or integer not in _INTEGERS or not -rank <= axis < rank:
        return None
    values = numpy_helper.to_array(weight)
    others = tuple(each for each in range(rank) if each != axis % rank)
    most = np.abs(values).max(axis=others, initial=0)
    limits = np.finfo(values.dtype)
    # Beyond that, some versions of ORT overflow; NaN is an error there.
    if not values.size or not (most <= limits.max / 2).all():
        return None
    # The zero points do not depend on the values and come from ORT: one for channels with a range,
    # one for channels without.
    (some, _), (none, one) = (
        compute_data_quant_params(np.array([each], values.dtype), integer, True, reduce_range)
        for each in (limits.max / 2, 0)
    )
    lowest, highest = get_qmin_qmax_for_qType(integer, reduce_range, symmetric=True)
    # In float64, so that nothing is lost before the division.
    scales = most.astype(np.float64) * 2 / (float(highest) - float(lowest))
    empty = scales < limits.tiny
    return np.where(empty, none, some), np.where(empty, one, scales.astype(values.dtype))


def _quantized_channels(
    weight: onnx.TensorProto,
    axis: int | None,
    integer: int,
    zero_point: np.ndarray,
    scale: np.ndarray,
) -> onnx.TensorProto | None:
    """Return the weight in integers, with one scale per channel; None if that is left to ORT."""
    if axis is None or integer not in _INTEGERS:
        return None
    values = numpy_helper.to_array(weight)
    # Which integer NaN becomes depends on how many values are cast at once.
    if not values.size or not np.isfinite(values).all():
        return None
    shape = [-1 if each == axis else 1 for each in range(values.ndim)]
    quantized = quantize_nparray(integer, values, scale.reshape(shape), zero_point.reshape(shape))
    return numpy_helper.from_array(quantized, weight.name + TENSOR_NAME_QUANT_SUFFIX)


def _copy(parameters: QuantizationParams) -> QuantizationParams:
    return QuantizationParams(
        **{
            key: value.copy() if isinstance(value, np.ndarray) else value
            for key, value in parameters.data.items()
        }
    )


def _content(value: Any) -> Any:
    """Return the value in a form that can be part of a key."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _stand_in(weight: onnx.TensorProto) -> onnx.TensorProto:
    """Return a tensor of the same name, type and rank that has a single value."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    return numpy_helper.from_array(np.zeros([1] * len(weight.dims), dtype), weight.name)
