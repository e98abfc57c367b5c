"""Packs single weights into fewer bits, with the nodes that unpack them.

Weights are unpacked by Cast, Mul, Reshape and Transpose, which ONNX Runtime folds when it loads a
model: that costs nothing per inference and needs no session option. It would keep a
DequantizeLinear for its fusions, and run it in every inference.
"""

import math
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.errors import QuantizationError
from seqto.graph.grids import on_grid
from seqto.types import CODED_STEPS, FLOAT16, INT4, INT8, INT16

HALF = np.finfo(np.float16)

LEVELS = {INT4: (-8, 7), INT8: (-127, 127), INT16: (-32767, 32767)}
"""The least and the largest integer of a precision."""

_INTEGERS = {INT8: np.int8, INT16: np.int16}


@dataclass(frozen=True, eq=False)
class Packed:
    """A stored weight: the tensors that hold it, and the nodes that unpack it.

    `values` and `scales` hold the weight; without scales, the values are its own. Those of int4 are
    in blocks: of the shape `padded`, once they are joined.
    """

    weight_type: int
    values: onnx.TensorProto
    scales: onnx.TensorProto | None
    sizes: tuple[onnx.TensorProto, ...]
    nodes: tuple[onnx.NodeProto, ...]
    padded: tuple[int, ...]

    @property
    def output(self) -> str:
        """The name of the unpacked weight, which layers read."""
        return str(self.nodes[-1].output[0])

    @property
    def tensors(self) -> tuple[onnx.TensorProto, ...]:
        """All tensors that the nodes read."""
        return (*self.held, *self.sizes)

    @property
    def held(self) -> tuple[onnx.TensorProto, ...]:
        """The tensors that hold the weight."""
        return (self.values,) if self.scales is None else (self.values, self.scales)


PackedWeights = MutableMapping[tuple[object, ...], Packed]
"""Weights of one model that were packed before; empty at first."""


def pack(
    weight: onnx.TensorProto,
    name: str,
    precision: str,
    reduced: tuple[int, ...],
    block: int,
    chosen: np.ndarray | None = None,
) -> Packed:
    """Return the weight in this precision, in tensors and nodes whose names start with `name`.

    `chosen` are its integers in the form of the weight; by default its values are rounded.
    """
    packing = _Packing(weight, name)
    if precision == FLOAT16:
        packing.as_float16()
    elif precision == INT4:
        packing.as_int4(reduced, block, chosen)
    else:
        packing.as_integers(precision, reduced, chosen)
    return packing.result()


def in_blocks(matrix: np.ndarray, precision: str, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix, whose rows are outputs, as integers in blocks, and the blocks' scales."""
    blocks = matrix.reshape(len(matrix), -1, block).astype(np.float32)
    if precision == INT4:
        return _in_int4(blocks, (2,))
    return _in_integers(blocks, (2,), precision)


@dataclass(frozen=True, eq=False)
class Rounded:
    """A weight's values as integers, and the scale of each value, both in the weight's form."""

    integers: np.ndarray
    scales: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """What the integers stand for."""
        return np.asarray(self.integers.astype(np.float32) * self.scales)


def rounded(values: np.ndarray, precision: str, reduced: tuple[int, ...], block: int) -> Rounded:
    """Return a weight as it is stored in this precision, rounded to integers."""
    if precision in CODED_STEPS:
        grid = on_grid(values, reduced, CODED_STEPS[precision])
        return Rounded(grid.integers, np.broadcast_to(grid.scales, values.shape))
    if precision != INT4:
        integers, scales = _in_integers(values.astype(np.float32), reduced, precision)
        return Rounded(integers, np.broadcast_to(scales.astype(np.float32), values.shape))
    order = _inputs_together(values.ndim, reduced)
    turned = values.transpose(order)
    cut = _cut(turned, tuple(map(order.index, reduced)), block)
    integers, scales = _in_int4(cut.values.astype(np.float32), cut.within)
    back = np.argsort(order)

    def whole(blocks: np.ndarray) -> np.ndarray:
        inside = tuple(map(slice, cut.flat))
        flat: np.ndarray = blocks.reshape(cut.padded)[inside]
        return flat.reshape(turned.shape).transpose(back)

    every = np.broadcast_to(scales.astype(np.float32), cut.values.shape)
    return Rounded(whole(integers), whole(every))


class _Packing:
    """Packs one weight: collects the tensors and nodes that replace it."""

    def __init__(self, weight: onnx.TensorProto, name: str) -> None:
        self._weight = weight
        self._values = numpy_helper.to_array(weight)
        self._name = name
        self._held: list[onnx.TensorProto] = []
        self._sizes: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._padded: tuple[int, ...] = self._values.shape

    def result(self) -> Packed:
        values, *scales = self._held
        return Packed(
            self._weight.data_type,
            values,
            scales[0] if scales else None,
            tuple(self._sizes),
            tuple(self._nodes),
            self._padded,
        )

    def as_float16(self) -> None:
        with np.errstate(over="ignore"):
            half = self._values.astype(np.float16)
        if not np.isfinite(half).all():
            raise QuantizationError(
                f"weight {self._weight.name!r} has values beyond {HALF.max:g}, the largest that "
                f"{FLOAT16} holds. Choose another precision for its layer, or leave {FLOAT16} out."
            )
        self._cast(self._hold(numpy_helper.from_array(half, self._name)))

    def as_integers(
        self, precision: str, reduced: tuple[int, ...], chosen: np.ndarray | None
    ) -> None:
        integers, scales = _in_integers(self._values.astype(np.float32), reduced, precision)
        if chosen is not None:
            integers = np.ascontiguousarray(chosen, _INTEGERS[precision])
        self._scaled(self._hold(numpy_helper.from_array(integers, self._name)), scales)

    def as_int4(self, reduced: tuple[int, ...], block: int, chosen: np.ndarray | None) -> None:
        order = _inputs_together(self._values.ndim, reduced)
        values = self._values.transpose(order)
        within = tuple(map(order.index, reduced))
        cut = _cut(values, within, block)
        integers, scales = _in_int4(cut.values.astype(np.float32), cut.within)
        if chosen is not None:
            cut_alike = _cut(chosen.transpose(order), within, block).values
            integers = np.ascontiguousarray(cut_alike, np.int8)
        packed = helper.make_tensor(
            self._name, TensorProto.INT4, integers.shape, nibbles(integers), raw=True
        )
        unpacked, shape = self._scaled(self._hold(packed), scales), integers.shape
        self._padded = cut.padded
        if cut.padded != cut.flat:
            unpacked = self._reshaped(unpacked, cut.padded, "padded")
            unpacked, shape = self._sliced(unpacked, cut.axis, cut.flat[cut.axis]), cut.flat
        if shape != values.shape:
            unpacked = self._reshaped(unpacked, values.shape, "whole")
        if order != sorted(order):
            self._transposed(unpacked, [order.index(axis) for axis in range(len(order))])

    def _scaled(self, integers: str, scales: np.ndarray) -> str:
        """Return the name of the integers times their scales."""
        stored = self._hold(numpy_helper.from_array(scales, f"{self._name}_scale"))
        if self._held[-1].data_type != self._weight.data_type:
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

    def _transposed(self, tensor: str, order: Sequence[int]) -> str:
        output = self._node("Transpose", [tensor], f"{self._name}_turned")
        self._nodes[-1].attribute.append(helper.make_attribute("perm", order))
        return output

    def _integers(self, values: Sequence[int], kind: str) -> str:
        array = np.array(values, np.int64)
        self._sizes.append(numpy_helper.from_array(array, f"{self._name}_{kind}"))
        return str(self._sizes[-1].name)

    def _hold(self, tensor: onnx.TensorProto) -> str:
        self._held.append(tensor)
        return str(tensor.name)

    def _node(self, op_type: str, inputs: Sequence[str], output: str) -> str:
        self._nodes.append(helper.make_node(op_type, inputs, [output], output))
        return output


def _inputs_together(rank: int, reduced: tuple[int, ...]) -> list[int]:
    """Return the order of a weight's axes in which blocks can be cut from all values of an output.

    A single axis can be cut where it is; several, as a transposed convolution has, come last.
    """
    if len(reduced) < 2:
        return list(range(rank))
    return [axis for axis in range(rank) if axis not in reduced] + list(reduced)


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
    # Inputs and window of a convolution are adjacent and form one axis.
    flat = values.reshape(*values.shape[:axis], math.prod(values.shape[axis:]))
    flat = flat if len(reduced) > 1 else values
    size = flat.shape[axis]
    count, length = even_blocks(size, block)
    if count == 1:
        return _Cut(values, reduced, axis, values.shape, values.shape)
    missing = [(0, count * length - size if at == axis else 0) for at in range(flat.ndim)]
    padded = np.pad(flat, missing)
    blocks = padded.reshape(*flat.shape[:axis], count, length, *flat.shape[axis + 1 :])
    return _Cut(blocks, (axis + 1,), axis, flat.shape, padded.shape)


def even_blocks(size: int, block: int) -> tuple[int, int]:
    """Return how many blocks of at most `block` values are needed, and their length."""
    # All of one length, to pad less: full blocks of 32 would pad 40 values to 64.
    count = max(math.ceil(size / block), 1)
    return count, math.ceil(size / count)


def _in_integers(
    values: np.ndarray, within: tuple[int, ...], precision: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as integers, as many above 0 as below, and one scale along these axes."""
    _, most = LEVELS[precision]
    largest = np.abs(values).max(axis=within, keepdims=True, initial=0)
    # The scales of 16-bit integers are too small for float16.
    scales = _short(largest / np.float32(most)) if precision == INT8 else _nonzero(largest / most)
    return _rounded(values, scales, -most, most).astype(_INTEGERS[precision]), scales


def _in_int4(values: np.ndarray, within: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as integers from -8 to 7, and one scale for all along these axes."""
    high = values.max(axis=within, keepdims=True, initial=0)
    low = values.min(axis=within, keepdims=True, initial=0)
    # The sign of the scale makes the largest value -8, so that all 16 levels are used. On
    # EfficientNet-Lite0 a layer then does a fifth less harm than with -7 to 7.
    size = _short(np.maximum(high, -low) / np.float32(8))
    scales = np.where(high >= -low, -size, size)
    return _rounded(values, scales, *LEVELS[INT4]).astype(np.int8), scales


def _rounded(values: np.ndarray, scales: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the values in units of these scales, rounded to integers."""
    return np.clip(np.rint(values / scales.astype(np.float32)), low, high)


def _short(scales: np.ndarray) -> np.ndarray:
    """Return the scales in float16, rounded up so that no value is clipped, if they fit."""
    scales = _nonzero(scales)
    # If float16 holds the largest scale, what smaller ones lose in precision does not matter.
    if not HALF.tiny <= scales.max(initial=0) <= HALF.max:
        return scales
    short = scales.astype(np.float16)
    return np.where(short < scales, np.nextafter(short, np.float16(np.inf)), short)


def _nonzero(scales: np.ndarray) -> np.ndarray:
    """Return the scales, 1 where all values are zero: any scale is right there."""
    return np.where(scales == 0, np.float32(1), scales)


def nibbles(integers: np.ndarray) -> bytes:
    """Return small integers as ONNX packs them: two per byte, the first in its lower half."""
    values = integers.reshape(-1).view(np.uint8) & 0xF
    values = np.pad(values, (0, values.size % 2))
    return bytes((values[0::2] | values[1::2] << 4).tobytes())
