"""What layers multiply their weights with: rows of their input, for a convolution its patches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import helper

from seqto.graph.layers import weight_of
from seqto.graph.nodes import attribute

_MATRIX = 2

_zip = partial(zip, strict=True)


@dataclass(frozen=True)
class Window:
    """The window of a convolution; `pads` are what is added before and behind each axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str


@dataclass(frozen=True)
class LayerInput:
    """How a layer reads its input: layers that read alike multiply their weights with the same.

    The rows of `tensor` are its last axis, or if `turned` the one before. With a window they are
    patches, one of each group of channels.
    """

    tensor: str
    turned: bool = False
    groups: int = 1
    window: Window | None = None


def input_of(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> tuple[LayerInput, onnx.TensorProto] | None:
    """Return how a layer reads its input, and its weight; None if it is no sum over rows."""
    weight = weight_of(node, constants)
    # The product of two constants has no samples.
    if weight is None or {*node.input[:2]} <= constants.keys():
        return None
    if node.op_type == "Conv":
        groups = int(attribute(node, "group", 1))
        return LayerInput(node.input[0], groups=groups, window=_window(node, weight)), weight
    if node.op_type == "Gemm" and len(weight.dims) == _MATRIX:
        return LayerInput(node.input[0], turned=bool(attribute(node, "transA", 0))), weight
    if node.op_type == "MatMul" and len(weight.dims) == _MATRIX:
        on_the_left = weight.name != node.input[1]
        return LayerInput(node.input[1 if on_the_left else 0], turned=on_the_left), weight
    return None


def as_rows(values: np.ndarray, reduced: Sequence[int], groups: int) -> np.ndarray:
    """Return a layer's weight as `[groups, outputs, values]`: each output is a row."""
    others = [axis for axis in range(values.ndim) if axis not in reduced]
    size = math.prod(values.shape[axis] for axis in reduced)
    return values.transpose(*others, *reduced).reshape(groups, -1, size)


def from_rows(rows: np.ndarray, reduced: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """Return what `as_rows` made of a weight of this shape as it was."""
    order = [axis for axis in range(len(shape)) if axis not in reduced] + list(reduced)
    turned = rows.reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(turned.transpose(np.argsort(order)))


def rows_of(
    array: np.ndarray,
    reading: LayerInput,
    most: int,
    draw: np.random.Generator,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Return at most `most` rows that the layer reads of its input, as `[groups, rows, values]`.

    `counts` tells which positions of the input's first two axes count; the others are padding.
    """
    if reading.window is not None:
        return _patches(array, reading.groups, reading.window, most, draw)
    if reading.turned and array.ndim > 1:
        array = array.swapaxes(-1, -2)
    rows = array.reshape(-1, array.shape[-1])
    if counts is not None and array.shape[:-1] == counts.shape:
        rows = rows[counts.reshape(-1).astype(bool)]
    return np.asarray(rows[_some(len(rows), most, draw)][None])


def _patches(
    array: np.ndarray, groups: int, window: Window, most: int, draw: np.random.Generator
) -> np.ndarray:
    count, channels, *sizes = array.shape
    before, behind = _pads(sizes, window)
    spans = [(size - 1) * step + 1 for size, step in _zip(window.kernel, window.dilations)]
    outputs = [
        max((size + first + last - span) // stride + 1, 0)
        for size, first, last, span, stride in _zip(sizes, before, behind, spans, window.strides)
    ]
    chosen = np.unravel_index(_some(count * math.prod(outputs), most, draw), (count, *outputs))
    inside = np.indices(window.kernel).reshape(len(sizes), -1)
    places = [
        at[:, None] * stride + offsets * step - first
        for at, stride, offsets, step, first in _zip(
            chosen[1:], window.strides, inside, window.dilations, before
        )
    ]
    flat = np.ravel_multi_index((chosen[0][:, None], *places), (count, *sizes), mode="clip")
    # Only what is read is touched, of inputs many times as large: padding comes after.
    positions = np.moveaxis(array, 1, -1).reshape(-1, channels)
    if len(positions) < flat.size:
        positions = np.ascontiguousarray(positions)
    found = positions[flat]
    outside = [(place < 0) | (place >= size) for place, size in _zip(places, sizes)]
    found[np.logical_or.reduce(outside)] = 0
    rows: np.ndarray = found.transpose(2, 0, 1)
    rows = rows.reshape(groups, channels // groups, len(found), -1)
    return rows.transpose(0, 2, 1, 3).reshape(groups, len(found), -1)


def _some(count: int, most: int, draw: np.random.Generator) -> np.ndarray:
    """Return at most so many of this many places, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(draw.choice(count, most, replace=False))


def _pads(sizes: Sequence[int], window: Window) -> tuple[Sequence[int], Sequence[int]]:
    """Return what is added before and behind each axis."""
    if window.auto_pad == "VALID":
        return [0] * len(sizes), [0] * len(sizes)
    if window.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return window.pads[: len(sizes)], window.pads[len(sizes) :]
    missing = [
        max((-(-size // stride) - 1) * stride + (kernel - 1) * step + 1 - size, 0)
        for size, stride, kernel, step in _zip(
            sizes, window.strides, window.kernel, window.dilations
        )
    ]
    small, large = [each // 2 for each in missing], [each - each // 2 for each in missing]
    return (small, large) if window.auto_pad == "SAME_UPPER" else (large, small)


def _window(node: onnx.NodeProto, weight: onnx.TensorProto) -> Window:
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    kernel = tuple(weight.dims[2:])
    ones = (1,) * len(kernel)
    return Window(
        kernel,
        tuple(given.get("strides", ones)),
        tuple(given.get("dilations", ones)),
        tuple(given.get("pads", (0,) * 2 * len(kernel))),
        given.get("auto_pad", b"NOTSET").decode(),
    )
