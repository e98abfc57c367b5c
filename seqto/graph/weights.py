"""Stores the weights of single layers in fewer bits; they are unpacked when a session is created.

Expects layers whose weights are float initializers; leaves every activation in float. Weights are
unpacked by Cast, Mul and Reshape, which ONNX Runtime folds when it loads a model: that costs
nothing per inference and needs no session option. It would keep a DequantizeLinear for its fusions,
and run it in every inference.
"""

import math
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from seqto.errors import LayerError, QuantizationError
from seqto.graph.files import changed
from seqto.graph.layers import reduced_axes, weight_of
from seqto.graph.links import drop_unused
from seqto.graph.load import first_line
from seqto.graph.nodes import all_nodes, initializers, replace_nodes, unused_name
from seqto.types import FLOAT16, FLOAT32, INT4, INT8, INT16, Layer, Model

INT4_OPSET = 21
"""The first opset with 4-bit tensors, and with 16-bit ones in QuantizeLinear."""

STORED = (INT4, INT8, FLOAT16)
"""The precisions that these functions store weights in."""

_BIAS = 2
"""Which input of a layer is its bias."""

_HALF = np.finfo(np.float16)
_UNPACKING_BYTES = {FLOAT16: 150, INT8: 350, INT4: 500}
"""About how many bytes the names, nodes and shapes of a stored weight take."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A stored weight: the tensors that hold it, and the nodes that unpack it."""

    tensors: tuple[onnx.TensorProto, ...]
    nodes: tuple[onnx.NodeProto, ...]

    @property
    def output(self) -> str:
        """The name of the unpacked weight, which layers read."""
        return str(self.nodes[-1].output[0])


PackedWeights = MutableMapping[tuple[object, ...], Packed]
"""Weights of one model that were packed before; empty at first."""


def store_float16(model: Model, layers: Collection[str]) -> Model:
    """Return the model with these layers' weights in float16."""
    return store(model, dict.fromkeys(layers, FLOAT16))


def store_int8(model: Model, layers: Collection[str]) -> Model:
    """Return the model with these weights in symmetric int8, one scale per output channel."""
    return store(model, dict.fromkeys(layers, INT8))


def store_int4(model: Model, layers: Collection[str], block: int) -> Model:
    """Return the model with these layers' weights in int4, without zero point, one scale per block.

    The values that an output sums over are cut into as few blocks of at most `block` values as
    possible, all of the same length.
    """
    return store(model, dict.fromkeys(layers, INT4), block)


def store(model: Model, precisions: Mapping[str, str], block: int = 32) -> Model:
    """Return the model with the weights of these layers in these precisions."""
    raised = at_opset(model, INT4_OPSET) if INT4 in precisions.values() else model
    proto = raised.copy_proto()
    store_into(proto, precisions, block, {})
    return Model(model.name, proto)


def store_into(
    proto: onnx.ModelProto, precisions: Mapping[str, str], block: int, packed: PackedWeights
) -> None:
    """Change the weights of these layers to these precisions; `packed` is read and filled."""
    wrong = sorted(set(precisions.values()) - {*STORED, FLOAT32})
    if wrong:
        raise QuantizationError(
            f"weights cannot be stored as {', '.join(wrong)}: "
            f"choose from {', '.join(STORED)} and {FLOAT32}."
        )
    graph = proto.graph
    constants = initializers(graph)
    added: dict[str, Packed] = {}
    replaced: set[str] = set()
    for node, weight in _with_weights(graph, constants, precisions):
        found = _packed(node, weight, precisions[node.name], block, packed, constants)
        if found is None:
            continue
        added[found.output] = found
        replaced.add(weight.name)
        at = list(node.input).index(weight.name, 1 if node.input[1] == weight.name else 0)
        node.input[at] = found.output
        bias = _bias_of(node, constants)
        if bias is not None:
            # Next to weights this coarse, float16 is precise enough for a bias.
            short = _packed(node, bias, FLOAT16, block, packed, constants)
            assert short is not None
            added[short.output] = short
            replaced.add(bias.name)
            node.input[_BIAS] = short.output
    if not added:
        return
    graph.initializer.extend(each for found in added.values() for each in found.tensors)
    unpacking = [each for found in added.values() for each in found.nodes]
    replace_nodes(graph, [*unpacking, *graph.node])
    drop_unused(graph, replaced)


def _bias_of(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    """Return the layer's bias, if it is a constant that float16 can hold."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.input) <= _BIAS:
        return None
    bias = constants.get(node.input[_BIAS])
    if bias is None or bias.data_type != TensorProto.FLOAT:
        return None
    largest = np.abs(numpy_helper.to_array(bias)).max(initial=0)
    return bias if largest <= _HALF.max else None


def own_weights(proto: onnx.ModelProto, layers: Collection[str]) -> None:
    """Give these layers copies of their own of the weights that other nodes read too."""
    graph = proto.graph
    constants = initializers(graph)
    others = {name for node in all_nodes(graph) if node.name not in layers for name in node.input}
    copies: dict[str, str] = {}
    for node, weight in _with_weights(graph, constants, layers):
        if weight.name not in others:
            continue
        if weight.name not in copies:
            copy = graph.initializer.add()
            copy.CopyFrom(weight)
            copy.name = copies[weight.name] = unused_name(f"{weight.name}_own", constants)
        for at, name in enumerate(node.input):
            if name == weight.name:
                node.input[at] = copies[name]


def at_opset(model: Model, version: int) -> Model:
    """Return the model in this opset, or unchanged if it has this or a later one."""
    given = max(each.version for each in model.proto.opset_import if not each.domain)
    if given >= version:
        return model
    try:
        proto = changed(
            model.proto, lambda proto: version_converter.convert_version(proto, version)
        )
    except Exception as error:  # The converter raises RuntimeError and others.
        raise QuantizationError(
            f"model {model.name!r} cannot be converted from opset {given} to {version} "
            f"({first_line(error)}), which {INT4} and {INT16} need. Export it with opset "
            f"{version} or later, or leave these precisions out."
        ) from error
    needed = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, needed)
    return Model(model.name, proto)


def stored_bytes(layer: Layer, precision: str, block: int = 32) -> int:
    """Return about how many bytes of the model's file a layer's weight takes in this precision.

    int16 is a precision of activations: the weights of such layers are int8.
    """
    outputs, values = layer.shape
    if precision == FLOAT32:
        return layer.weight_bytes
    if precision == FLOAT16:
        return outputs * values * 2 + _UNPACKING_BYTES[FLOAT16]
    if precision == INT4:
        count, length = _even_blocks(values, block)
        return outputs * ((count * length + 1) // 2 + 2 * count) + _UNPACKING_BYTES[INT4]
    return outputs * (values + 2) + _UNPACKING_BYTES[INT8]


def _with_weights(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], layers: Collection[str]
) -> list[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """Return the nodes of these layers with their weights, in the order of the graph."""
    nodes = {node.name: node for node in graph.node if node.name in layers}
    weights = {name: weight_of(node, constants) for name, node in nodes.items()}
    unknown = sorted(name for name in layers if weights.get(name) is None)
    if unknown:
        known = [node.name for node in graph.node if weight_of(node, constants) is not None]
        raise LayerError(unknown, known, "candidate.precisions")
    return [(node, weight) for name, node in nodes.items() if (weight := weights[name]) is not None]


def _packed(
    node: onnx.NodeProto,
    weight: onnx.TensorProto,
    precision: str,
    block: int,
    packed: PackedWeights,
    taken: Collection[str],
) -> Packed | None:
    """Return the packed weight of a layer, or None if it has this precision already."""
    if precision == FLOAT32 or (precision, weight.data_type) == (FLOAT16, TensorProto.FLOAT16):
        return None
    reduced = reduced_axes(node, weight) if precision != FLOAT16 else ()
    key = (weight.name, precision, reduced, block if precision == INT4 else 0)
    if key not in packed:
        # The axis is in the name, because layers may read one weight along different axes.
        suffix = "".join([f"_{precision}", *(f"_{axis}" for axis in reduced[:1])])
        packing = _Packing(weight, unused_name(weight.name + suffix, taken))
        if precision == FLOAT16:
            packing.as_float16()
        elif precision == INT8:
            packing.as_int8(reduced)
        else:
            packing.as_int4(reduced, block)
        packed[key] = packing.result()
    return packed[key]


class _Packing:
    """Packs one weight: collects the tensors and nodes that replace it."""

    def __init__(self, weight: onnx.TensorProto, name: str) -> None:
        self._weight = weight
        self._values = numpy_helper.to_array(weight)
        self._name = name
        self._tensors: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def result(self) -> Packed:
        return Packed(tuple(self._tensors), tuple(self._nodes))

    def as_float16(self) -> None:
        with np.errstate(over="ignore"):
            half = self._values.astype(np.float16)
        if not np.isfinite(half).all():
            raise QuantizationError(
                f"weight {self._weight.name!r} has values beyond {_HALF.max:g}, the largest that "
                f"{FLOAT16} holds. Choose another precision for its layer, or leave {FLOAT16} out."
            )
        self._cast(self._tensor(numpy_helper.from_array(half, self._name)))

    def as_int8(self, reduced: tuple[int, ...]) -> None:
        integers, scales = _in_int8(self._values.astype(np.float32), reduced)
        stored = self._tensor(numpy_helper.from_array(integers, self._name))
        self._scaled(stored, scales)

    def as_int4(self, reduced: tuple[int, ...], block: int) -> None:
        cut = _cut(self._values, reduced, block)
        integers, scales = _in_int4(cut.values.astype(np.float32), cut.within)
        packed = helper.make_tensor(
            self._name, TensorProto.INT4, integers.shape, _nibbles(integers), raw=True
        )
        unpacked, shape = self._scaled(self._tensor(packed), scales), integers.shape
        if cut.padded != cut.flat:
            unpacked = self._reshaped(unpacked, cut.padded, "padded")
            unpacked, shape = self._sliced(unpacked, cut.axis, cut.flat[cut.axis]), cut.flat
        if shape != self._values.shape:
            self._reshaped(unpacked, self._values.shape, "whole")

    def _scaled(self, integers: str, scales: np.ndarray) -> str:
        """Return the name of the integers times their scales."""
        stored = self._tensor(numpy_helper.from_array(scales, f"{self._name}_scale"))
        if self._tensors[-1].data_type != self._weight.data_type:
            stored = self._cast(stored)
        return self._node("Mul", [self._cast(integers), stored], f"{self._name}_scaled")

    def _cast(self, tensor: str) -> str:
        output = self._node("Cast", [tensor], f"{tensor}_cast")
        self._nodes[-1].attribute.append(helper.make_attribute("to", self._weight.data_type))
        return output

    def _reshaped(self, tensor: str, shape: Sequence[int], kind: str) -> str:
        dims = self._integers(shape, f"{kind}_shape")
        return self._node("Reshape", [tensor, dims], f"{self._name}_{kind}")

    def _sliced(self, tensor: str, axis: int, size: int) -> str:
        limits = {"from": 0, "to": size, "along": axis}
        inputs = [self._integers([value], kind) for kind, value in limits.items()]
        return self._node("Slice", [tensor, *inputs], f"{self._name}_sliced")

    def _integers(self, values: Sequence[int], kind: str) -> str:
        array = np.array(values, np.int64)
        return self._tensor(numpy_helper.from_array(array, f"{self._name}_{kind}"))

    def _tensor(self, tensor: onnx.TensorProto) -> str:
        self._tensors.append(tensor)
        return str(tensor.name)

    def _node(self, op_type: str, inputs: Sequence[str], output: str) -> str:
        self._nodes.append(helper.make_node(op_type, inputs, [output], output))
        return output


@dataclass(frozen=True, eq=False)
class _Cut:
    """A weight's values in blocks; `within` are the axes of a block.

    `axis` is the axis that was cut; `flat` is the shape before padding, `padded` the one after it.
    """

    values: np.ndarray
    within: tuple[int, ...]
    axis: int
    flat: tuple[int, ...]
    padded: tuple[int, ...]


def _cut(values: np.ndarray, reduced: tuple[int, ...], block: int) -> _Cut:
    """Return the values, cut into blocks along what an output sums over."""
    axis = reduced[0]
    # Inputs and window of a convolution are adjacent and form one axis; not of a transposed one.
    together = reduced == tuple(range(axis, values.ndim))
    flat = values.reshape(*values.shape[:axis], math.prod(values.shape[axis:]))
    flat = flat if together else values
    size = flat.shape[axis]
    count, length = _even_blocks(size, block)
    if count == 1:
        within = reduced if together else (axis,)
        return _Cut(values, within, axis, values.shape, values.shape)
    missing = [(0, count * length - size if at == axis else 0) for at in range(flat.ndim)]
    padded = np.pad(flat, missing)
    blocks = padded.reshape(*flat.shape[:axis], count, length, *flat.shape[axis + 1 :])
    return _Cut(blocks, (axis + 1,), axis, flat.shape, padded.shape)


def _even_blocks(size: int, block: int) -> tuple[int, int]:
    """Return how many blocks of at most `block` values are needed, and their length."""
    # All of one length, to pad less: full blocks of 32 would pad 40 values to 64.
    count = max(math.ceil(size / block), 1)
    return count, math.ceil(size / count)


def _in_int8(values: np.ndarray, within: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as integers from -127 to 127, and one scale for all along these axes."""
    largest = np.abs(values).max(axis=within, keepdims=True, initial=0)
    scales = _short(largest / np.float32(127))
    return _rounded(values, scales, -127, 127), scales


def _in_int4(values: np.ndarray, within: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as integers from -8 to 7, and one scale for all along these axes."""
    high = values.max(axis=within, keepdims=True, initial=0)
    low = values.min(axis=within, keepdims=True, initial=0)
    # The sign of the scale makes the largest value -8, so that all 16 levels are used. On
    # EfficientNet-Lite0 a layer then does a fifth less harm than with -7 to 7.
    size = _short(np.maximum(high, -low) / np.float32(8))
    scales = np.where(high >= -low, -size, size)
    return _rounded(values, scales, -8, 7), scales


def _rounded(values: np.ndarray, scales: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the values in units of these scales, rounded to integers."""
    integers = np.rint(values / scales.astype(np.float32))
    return np.clip(integers, low, high).astype(np.int8)


def _short(scales: np.ndarray) -> np.ndarray:
    """Return the scales in float16, rounded up so that no value is clipped, if they fit."""
    # If all values are zero, any scale is right.
    scales = np.where(scales == 0, np.float32(1), scales)
    # If float16 holds the largest scale, what smaller ones lose in precision does not matter.
    if not _HALF.tiny <= scales.max(initial=0) <= _HALF.max:
        return scales
    short = scales.astype(np.float16)
    return np.where(short < scales, np.nextafter(short, np.float16(np.inf)), short)


def _nibbles(integers: np.ndarray) -> bytes:
    """Return small integers as ONNX packs them: two per byte, the first in its lower half."""
    values = integers.reshape(-1).view(np.uint8) & 0xF
    values = np.pad(values, (0, values.size % 2))
    return bytes((values[0::2] | values[1::2] << 4).tobytes())
