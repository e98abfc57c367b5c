"""Schedules of convolutions with packed channels: tiles of pixels x vectors of channels."""

from typing import TYPE_CHECKING, Any

from seqto.devices.tvm_loops import (
    Vectors,
    divisors,
    extent,
    input_shape,
    loops_of,
    reuse,
    unroll,
)
from seqto.devices.tvm_packing import CONVOLUTION, DEPTHWISE, PRODUCT

if TYPE_CHECKING:
    from tvm import s_tir

WORTH_FLATTENING = 1.2
"""How much more often each load has to be used."""


def is_packed(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block is a convolution or a product with packed weights."""
    return _name(schedule, block).startswith(tuple(_CUTS))


def is_packed_depthwise(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block is a depthwise convolution with packed channels."""
    return _name(schedule, block).startswith(DEPTHWISE)


def _name(schedule: "s_tir.Schedule", block: Any) -> str:
    return str(schedule.get(block).name_hint)


def tile_packed(
    schedule: "s_tir.Schedule",
    block: Any,
    epilogue: Any,
    padding: Any | None,
    vectors: Vectors,
    threaded: bool,
) -> None:
    """Compute a packed convolution in tiles of its output, each with its epilogue."""
    kind = next(kind for kind in _CUTS if _name(schedule, block).startswith(kind))
    if kind == CONVOLUTION and _better_flat(schedule, block, vectors):
        _flatten(schedule, block, epilogue)
    outer, at = _CUTS[kind](schedule, epilogue, vectors)
    schedule.compute_at(block, at, preserve_unit_loops=True)
    outside = len(schedule.get_loops(block)) - len(schedule.get(block).iter_vars)
    tile, steps = loops_of(schedule, block, schedule.get_loops(block)[outside:])
    if kind == PRODUCT:
        # As one loop the columns would be a single vector, of more values than a register holds.
        *rows, column = tile
        lanes = extent(schedule, schedule.get_loops(epilogue)[-1])
        tile = [*rows, *schedule.split(column, [None, lanes])]
    schedule.reorder(*steps, *tile)
    unroll(schedule, tile)
    if padding is not None:
        schedule.compute_at(padding, outer)
        schedule.vectorize(schedule.get_loops(padding)[-1])
    # In this order: a block with a separate initialisation no longer counts as a reduction.
    if threaded:
        schedule.parallel(outer)
    schedule.decompose_reduction(block, steps[0])


def _is_pointwise(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether each pixel of the output is made of the same pixel of the input."""
    spatial, summing = loops_of(schedule, block)
    window = [extent(schedule, loop) for loop in summing[1:3]]
    picture = [extent(schedule, loop) for loop in spatial[2:4]]
    return window == [1, 1] and input_shape(schedule, block)[2:4] == picture


def _better_flat(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> bool:
    """Tell whether rows fit no good tile, but the whole picture does.

    The indices of a flat picture take TVM long to simplify.
    """
    if not _is_pointwise(schedule, block):
        return False
    _, channels, height, width, _ = (
        extent(schedule, loop) for loop in loops_of(schedule, block)[0]
    )
    rows, flat = vectors.tile(width, channels), vectors.tile(height * width, channels)
    return reuse(flat) > WORTH_FLATTENING * reuse(rows)


def _flatten(schedule: "s_tir.Schedule", block: Any, epilogue: Any) -> None:
    """Make one axis of the rows and columns of a picture: tiles fit more of it evenly."""
    width = schedule.get(block).iter_vars[3].dom.extent
    schedule.transform_layout(block, ("write", 0), lambda n, k, y, x, i: (n, k, y * width + x, i))
    schedule.transform_block_layout(
        block, lambda n, k, y, x, i, a, b, c, d: (n, k, y * width + x, i, a, b, c, d)
    )
    schedule.transform_block_layout(epilogue, lambda n, k, y, x, i: (n, k, y * width + x, i))


def _pixels(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> tuple[Any, Any]:
    """Cut a block into tiles of a row's pixels and of channels; return the loop over all tiles."""
    first, channel, *rows, pixel, lane = schedule.get_loops(block)
    size, count = vectors.tile(extent(schedule, pixel), extent(schedule, channel))
    channels, near = schedule.split(channel, [None, count])
    pixels, within = schedule.split(pixel, [None, size])
    schedule.reorder(first, channels, *rows, pixels, near, within, lane)
    unroll(schedule, [near, within, lane])
    whole = schedule.fuse(first, channels, *rows, pixels)
    return whole, whole


def _pictures(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> tuple[Any, Any]:
    """Cut a block into parts of rows; return the loop over pictures, and the one over the parts."""
    first, channel, _, pixel, lane = schedule.get_loops(block)
    size = max(divisors(extent(schedule, pixel), vectors.registers))
    pixels, within = schedule.split(pixel, [None, size])
    unroll(schedule, [within, lane])
    return schedule.fuse(first, channel), pixels


def _columns(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> tuple[Any, Any]:
    """Cut a block into tiles of rows and of vectors of columns; return the loop over all tiles."""
    *first, row, column = schedule.get_loops(block)
    lanes = vectors.block(extent(schedule, column))
    size, count = vectors.tile(extent(schedule, row), extent(schedule, column) // lanes)
    columns, near, lane = schedule.split(column, [None, count, lanes])
    rows, within = schedule.split(row, [None, size])
    schedule.reorder(*first, columns, rows, near, within, lane)
    unroll(schedule, [near, within, lane])
    whole = schedule.fuse(*first, columns, rows)
    return whole, whole


_CUTS = {CONVOLUTION: _pixels, DEPTHWISE: _pictures, PRODUCT: _columns}
