"""A schedule for TVM's CPU code that uses vector units and all cores, without tuning.

TVM lowers an operation to plain nested loops, which its compiler neither vectorizes nor spreads
over threads. The rule here computes one tile of the output at a time. The tile stays in registers
during the reduction, and what is fused behind it (bias, activation, quantization) is applied there.
"""

from typing import TYPE_CHECKING, Any

from seqto.devices.tvm_loops import (
    REDUCTION,
    WORTH_A_THREAD,
    UnknownFormError,
    Vectors,
    divisors,
    extent,
    input_shape,
    loops_of,
    unroll,
    vectors_of,
)
from seqto.devices.tvm_packed_schedule import is_packed, is_packed_depthwise, tile_packed

if TYPE_CHECKING:
    from tvm import s_tir

_LOADS = ("TensorLoad", "BufferLoad")
"""TVM's names for reading a value."""


def schedule_pass() -> Any:
    """Return the pass that schedules the functions it can, and leaves the others unchanged."""
    from tvm.s_tir import dlight

    class VectorizeAndParallelize(dlight.base.ScheduleRule):
        def apply(self, func: Any, target: Any, tunable: bool) -> Any:
            return scheduled(func, vectors_of(target))

    return dlight.ApplyDefaultSchedule(VectorizeAndParallelize())


def scheduled(func: Any, vectors: Vectors) -> Any:
    """Return a schedule of this function, or None if none is known; it then runs unscheduled."""
    from tvm import s_tir

    schedule = s_tir.Schedule(func)
    try:
        _apply(schedule, vectors)
    except (s_tir.ScheduleError, UnknownFormError):
        return None
    return schedule


def _apply(schedule: "s_tir.Schedule", vectors: Vectors) -> None:
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    summing = [block for block in blocks if _is_reduction(schedule, block)]
    last = blocks.index(summing[-1]) if summing else -1
    epilogue = _inlined(schedule, blocks[last + 1 :])
    fused = epilogue[0] if summing and len(epilogue) == 1 else None
    if fused is not None and not _same_loops(schedule, summing[-1], fused):
        fused = None
    before = [block for block in blocks[: last + 1] if not _is_reduction(schedule, block)]
    for block in [block for block in before if _is_copy(schedule, block)]:
        schedule.compute_inline(block)
        before.remove(block)
    padding = None
    if len(before) == len(summing) == 1 and _pads_by_pictures(schedule, summing[0]):
        # The pictures of a depthwise convolution are padded there, one at a time.
        padding = before.pop()
    for block in [*before, *(epilogue if fused is None else [])]:
        _elementwise(schedule, block, vectors)
    for block in summing:
        _tiled(schedule, block, fused if block is summing[-1] else None, padding, vectors)


def _pads_by_pictures(schedule: "s_tir.Schedule", block: Any) -> bool:
    return is_packed_depthwise(schedule, block) or _by_pictures(schedule, block)


def _is_reduction(schedule: "s_tir.Schedule", block: Any) -> bool:
    return any(axis.iter_type == REDUCTION for axis in schedule.get(block).iter_vars)


def _is_copy(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block only copies, as the padding in front of a pointwise convolution does."""
    body = schedule.get(block).body
    # TVM 0.27 has no class for a load that works with isinstance.
    return type(body).__name__ == "BufferStore" and type(body.value).__name__ in _LOADS


def _inlined(schedule: "s_tir.Schedule", blocks: list[Any]) -> list[Any]:
    """Return these blocks except those that can be computed inside the last one."""
    from tvm import s_tir

    kept = []
    for block in blocks[:-1]:
        try:
            schedule.compute_inline(block)
        except s_tir.ScheduleError:
            kept.append(block)
    return [*kept, *blocks[-1:]]


def _same_loops(schedule: "s_tir.Schedule", block: Any, other: Any) -> bool:
    """Tell whether the second block loops over the first one's output in the same order."""
    spatial = [extent(schedule, loop) for loop in loops_of(schedule, block)[0]]
    return spatial == [extent(schedule, loop) for loop in schedule.get_loops(other)]


def _elementwise(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> None:
    """Vectorize a block that computes each value by itself, and spread it over the threads."""
    if not schedule.get_loops(block):
        return
    # Not all loops fused: indices of broadcast values would then need divisions.
    *outer, inner = schedule.get_loops(block)
    count = extent(schedule, inner)
    for loop in outer:
        count *= extent(schedule, loop)
    if not _is_conditional(schedule, block):
        width = max(divisors(extent(schedule, inner), 4 * vectors.lanes))
        over, within = schedule.split(inner, [None, width])
        schedule.vectorize(within)
        outer = [*outer, over]
    if count >= WORTH_A_THREAD and outer:
        schedule.parallel(schedule.fuse(*outer))


def _is_conditional(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block reads conditionally, as padding does; vectorizing that is slower."""
    return "if_then_else" in str(schedule.get(block).body)


def _tiled(
    schedule: "s_tir.Schedule",
    block: Any,
    epilogue: Any | None,
    padding: Any | None,
    vectors: Vectors,
) -> None:
    """Compute a reduction in tiles of its output, each with its epilogue."""
    size = 1
    for loop in loops_of(schedule, block)[0]:
        size *= extent(schedule, loop)
    if size == 1:
        _in_lanes(schedule, block, vectors)
        return
    if epilogue is None:
        epilogue = schedule.cache_write(block, 0, "local")
    else:
        schedule.set_scope(block, 0, "local")
    if is_packed(schedule, block):
        tile_packed(schedule, block, epilogue, padding, vectors, size >= WORTH_A_THREAD)
        return
    if _is_pointwise(schedule, block):
        _flatten(schedule, block, epilogue)
    by_pictures = _by_pictures(schedule, block)
    if by_pictures and _is_strided(schedule, block):
        _by_rows(schedule, block, epilogue, padding, size)
        return
    outer, at = _tile(schedule, epilogue, vectors, by_pictures)
    schedule.compute_at(block, at, preserve_unit_loops=True)
    outside = 3 if by_pictures else 1
    tile, steps = loops_of(schedule, block, schedule.get_loops(block)[outside:])
    schedule.reorder(*steps, *tile)
    unroll(schedule, [loop for loop in tile if extent(schedule, loop) > 1])
    if padding is not None:
        schedule.compute_at(padding, outer)
    # In this order: a block with a separate initialisation no longer counts as a reduction.
    if size >= WORTH_A_THREAD:
        schedule.parallel(outer)
    schedule.decompose_reduction(block, steps[0])


def _in_lanes(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> None:
    """Reduce all values to a single one by way of a vector.

    One by one, each step would wait for the one before.
    """
    inner = schedule.get_loops(block)[-1]
    width = vectors.width(extent(schedule, inner))
    if width == 1:
        return
    _, lane = schedule.split(inner, [None, width])
    partial = schedule.rfactor(lane, 0)
    schedule.set_scope(partial, 0, "local")
    *loops, lane = schedule.get_loops(partial)
    schedule.vectorize(lane)
    schedule.decompose_reduction(partial, loops[0])


def _by_pictures(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether each output picture is made of one of the input, as by a depthwise convolution.

    Its channels share no inputs, so a tile has rows of one picture.
    """
    if not _is_convolution(schedule, block):
        return False
    _, summing = loops_of(schedule, block)
    return extent(schedule, summing[0]) == 1 and input_shape(schedule, block)[1] != 1


def _is_pointwise(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether each pixel of the output is made of the same pixel of the input."""
    if not _is_convolution(schedule, block):
        return False
    spatial, summing = loops_of(schedule, block)
    picture = [extent(schedule, loop) for loop in spatial[2:]]
    window = [extent(schedule, loop) for loop in summing[1:]]
    return window == [1, 1] and input_shape(schedule, block)[2:] == picture


def _is_convolution(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block has the axes of a convolution of pictures."""
    spatial, summing = loops_of(schedule, block)
    return len(spatial) == 4 and len(summing) == 3 and len(input_shape(schedule, block)) == 4


def _is_strided(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a row skips inputs, which are slow to collect in vectors."""
    from tvm.sym import detect_linear_equation

    inner = schedule.get(block)
    first = inner.reads[0].region[-1].min
    found = detect_linear_equation(first, [inner.iter_vars[3].var])
    return not found or getattr(found[0], "value", None) != 1


def _flatten(schedule: "s_tir.Schedule", block: Any, epilogue: Any) -> None:
    """Make one axis of the rows and columns of a picture: more of it fits vectors evenly."""
    width = schedule.get(block).iter_vars[3].dom.extent
    schedule.transform_layout(block, ("write", 0), lambda n, c, y, x: (n, c, y * width + x))
    schedule.transform_block_layout(
        block, lambda n, c, y, x, i, j, k: (n, c, y * width + x, i, j, k)
    )
    schedule.transform_block_layout(epilogue, lambda n, c, y, x: (n, c, y * width + x))


def _by_rows(
    schedule: "s_tir.Schedule", block: Any, epilogue: Any, padding: Any | None, size: int
) -> None:
    """Compute a depthwise convolution one row at a time.

    LLVM unrolls the short reduction and vectorizes the row.
    """
    *outer, row, _ = schedule.get_loops(epilogue)
    picture = schedule.fuse(*outer)
    schedule.compute_at(block, row)
    if padding is not None:
        schedule.compute_at(padding, picture)
    if size >= WORTH_A_THREAD:
        schedule.parallel(picture)


def _tile(
    schedule: "s_tir.Schedule", block: Any, vectors: Vectors, by_pictures: bool
) -> tuple[Any, Any]:
    """Cut a block's loops into tiles; return the loop for threads, and the one over the tiles."""
    loops = schedule.get_loops(block)
    row, column = (2, 3) if by_pictures else _row_and_column(schedule, loops)
    width = vectors.width(extent(schedule, loops[column]))
    cut = {column: width}
    if row >= 0:
        cut[row] = vectors.rows(extent(schedule, loops[row]), width)
    outer, inner = [], []
    for at, loop in enumerate(loops):
        if at in cut:
            over, within = schedule.split(loop, [None, cut[at]])
            inner.append(within)
            outer.append(over)
        else:
            outer.append(loop)
    schedule.reorder(*outer, *inner)
    unroll(schedule, inner)
    if by_pictures:
        return schedule.fuse(*outer[:2]), outer[3]
    whole = schedule.fuse(*outer)
    return whole, whole


def _row_and_column(schedule: "s_tir.Schedule", loops: list[Any]) -> tuple[int, int]:
    """Return the two axes of a tile: the channels, and the innermost one longer than 1."""
    wide = [at for at, loop in enumerate(loops) if extent(schedule, loop) > 1]
    column = wide[-1] if wide else len(loops) - 1
    return (wide[0] if len(wide) > 1 else -1), column
