"""Convolutions with packed channels: as many channels as a vector holds lie beside each other.

A picture of C channels is kept as (N, C / b, H, W, b). A vector then has b channels of one pixel,
whatever the size of the picture, and a tile of sums needs one load for b weights, which are packed
in the order in which they are used. The pass here puts each convolution between a `pack` and an
`unpack`; that of `tvm_propagation` moves what is between two convolutions into the packed layout,
where `unpack` and `pack` cancel out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.devices.tvm_constants import constant, mutated, static_shape
from seqto.devices.tvm_loops import Vectors, vectors_of

CONVOLUTION = "packed_convolution"
DEPTHWISE = "packed_depthwise"
PRODUCT = "packed_product"
"""How the blocks are named that sum; the schedule knows them by it."""

LAYOUT = "seqto.layout"
"""The attribute of the functions that change the layout."""


def packing_pass(target: Any) -> Any:
    """Return the pass that makes packed convolutions of those with constant weights."""
    import tvm
    from tvm import relax
    from tvm.ir import Op

    vectors = vectors_of(target)

    @relax.expr_functor.mutator
    class Packer(relax.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = call.op.name if isinstance(call.op, Op) else ""
            if name == "relax.matmul":
                return _packed_product(self, call, vectors)
            return _packed(self, call, vectors) if name == "relax.nn.conv2d" else call

    return tvm.transform.module_pass(
        lambda module, _: mutated(Packer, module), opt_level=0, name="PackConvolutions"
    )


@dataclass(frozen=True)
class _Convolution:
    """A convolution that can be packed: by how many channels, and what it computes."""

    block: int
    in_block: int
    depthwise: bool
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]


def _convolution(call: Any, weights: np.ndarray, vectors: Vectors) -> _Convolution | None:
    """Return how to pack a convolution, or None if it cannot be packed."""
    shape, groups = static_shape(call.args[0]), int(call.attrs.groups)
    if shape is None or weights.dtype != np.float32 or _layouts(call) != ("NCHW", "OIHW", "NCHW"):
        return None
    block = vectors.block(weights.shape[0])
    depthwise = groups > 1 and groups == shape[1] == weights.shape[0]
    if block == 1 or (groups > 1 and not depthwise):
        return None
    top, left, bottom, right = map(int, call.attrs.padding)
    return _Convolution(
        block=block,
        in_block=vectors.block(shape[1]),
        depthwise=depthwise,
        strides=_pair(call.attrs.strides),
        padding=(top, left, bottom, right),
        dilation=_pair(call.attrs.dilation),
    )


def _pair(values: Any) -> tuple[int, int]:
    rows, columns = values
    return int(rows), int(columns)


def _layouts(call: Any) -> tuple[str, str, str]:
    return call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout


def _packed(mutator: Any, call: Any, vectors: Vectors) -> Any:
    """Return the unpacked result of a packed convolution, or the call if it cannot be packed."""
    from tvm import relax

    builder, (picture, weights) = mutator.builder_, call.args
    values = constant(mutator, weights)
    found = None if values is None else _convolution(call, values, vectors)
    if values is None or found is None:
        return call
    if found.in_block > 1:
        picture = builder.emit(relaid(builder, picture, found.in_block, "pack"))
    packed = _packed_depthwise(values, found) if found.depthwise else _packed_weights(values, found)
    kernel = _depthwise if found.depthwise else _dense
    result = builder.call_te(
        lambda picture, weights: kernel(picture, weights, found),
        picture,
        relax.const(packed),
        primfunc_name_hint=DEPTHWISE if found.depthwise else CONVOLUTION,
    )
    return relaid(builder, builder.emit(result), found.block, "unpack")


def _packed_product(mutator: Any, call: Any, vectors: Vectors) -> Any:
    """Return a product with a constant matrix that is packed by columns, or the call."""
    from tvm import relax

    rows, values = call.args[0], constant(mutator, call.args[1])
    shape = static_shape(rows)
    if values is None or values.ndim != 2 or shape is None or len(shape) < 2:
        return call
    block = vectors.block(values.shape[1])
    if block == 1 or values.dtype != np.float32 or call.ty.dtype != "float32":
        return call
    split = values.reshape(values.shape[0], -1, block).transpose(1, 0, 2)
    return mutator.builder_.call_te(
        _product, rows, relax.const(np.ascontiguousarray(split)), primfunc_name_hint=PRODUCT
    )


def _product(rows: Any, columns: Any) -> Any:
    from tvm import te

    groups, length, block = columns.shape
    inner = te.reduce_axis((0, length))
    return te.compute(
        (*rows.shape[:-1], groups * block),
        lambda *at: te.sum(
            rows[*at[:-1], inner] * columns[at[-1] // block, inner, at[-1] % block], axis=inner
        ),
        PRODUCT,
    )


def _packed_weights(values: np.ndarray, found: _Convolution) -> np.ndarray:
    outputs, inputs, height, width = values.shape
    shape = (outputs // found.block, found.block, inputs // found.in_block, found.in_block)
    split = values.reshape(*shape, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def _packed_depthwise(values: np.ndarray, found: _Convolution) -> np.ndarray:
    channels, _, height, width = values.shape
    split = values.reshape(channels // found.block, found.block, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


def relaid(builder: Any, value: Any, block: int, kind: str) -> Any:
    """Return a call that packs or unpacks the channels of pictures."""
    change = _pack if kind == "pack" else _unpack
    return builder.call_te(
        lambda tensor: change(tensor, block),
        value,
        primfunc_name_hint=kind,
        primfunc_attrs={LAYOUT: kind},
    )


def _pack(value: Any, block: int) -> Any:
    from tvm import te

    n, c, h, w = value.shape
    return te.compute(
        (n, c // block, h, w, block), lambda n, c, y, x, i: value[n, c * block + i, y, x], "pack"
    )


def _unpack(value: Any, block: int) -> Any:
    from tvm import te

    n, c, h, w, _ = value.shape
    return te.compute(
        (n, c * block, h, w), lambda n, c, y, x: value[n, c // block, y, x, c % block], "unpack"
    )


def _padded(picture: Any, found: _Convolution) -> Any:
    from tvm import topi

    if not any(found.padding):
        return picture
    top, left, bottom, right = found.padding
    # A plain picture has no axis of channels at its end.
    rest = [0] * (len(picture.shape) - 4)
    before, after = [0, 0, top, left, *rest], [0, 0, bottom, right, *rest]
    return topi.nn.pad(picture, before, after, name="padding")


def _positions(picture: Any, height: Any, width: Any, found: _Convolution) -> tuple[Any, Any]:
    """Return how many rows and columns the output has."""
    lengths = [
        (size - dilation * (window - 1) - 1) // stride + 1
        for size, window, stride, dilation in zip(
            picture.shape[2:4], (height, width), found.strides, found.dilation, strict=True
        )
    ]
    return lengths[0], lengths[1]


def _dense(picture: Any, weights: Any, found: _Convolution) -> Any:
    """Compute a convolution in which each output channel depends on all of the input."""
    from tvm import te

    outputs, groups, height, width, inner, block = weights.shape
    picture = _padded(picture, found)
    axes = [te.reduce_axis((0, each)) for each in (groups, height, width, inner)]
    group, row, column, channel = axes
    (down, right), (far_down, far_right) = found.strides, found.dilation

    def value(n: Any, y: Any, x: Any) -> Any:
        at = y * down + row * far_down, x * right + column * far_right
        # Channels that do not fill vectors are not packed.
        return picture[n, group, *at, channel] if found.in_block > 1 else picture[n, group, *at]

    return te.compute(
        (picture.shape[0], outputs, *_positions(picture, height, width, found), block),
        lambda n, k, y, x, i: te.sum(
            value(n, y, x) * weights[k, group, row, column, channel, i], axis=axes
        ),
        CONVOLUTION,
    )


def _depthwise(picture: Any, weights: Any, found: _Convolution) -> Any:
    """Compute a convolution in which each output channel depends on its own input channel."""
    from tvm import te

    groups, height, width, block = weights.shape
    picture = _padded(picture, found)
    row, column = te.reduce_axis((0, height)), te.reduce_axis((0, width))
    (down, right), (far_down, far_right) = found.strides, found.dilation
    return te.compute(
        (picture.shape[0], groups, *_positions(picture, height, width, found), block),
        lambda n, k, y, x, i: te.sum(
            picture[n, k, y * down + row * far_down, x * right + column * far_right, i]
            * weights[k, row, column, i],
            axis=[row, column],
        ),
        DEPTHWISE,
    )
