"""A schedule for TVM's CPU code that uses vector units and all cores, without tuning.

TVM lowers an operation to plain nested loops, which its compiler neither vectorizes nor spreads
over threads. The rule here computes one tile of the output at a time. The tile stays in registers
during the reduction, and what is fused behind it (bias, activation, quantization) is applied there.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm import s_tir

_REDUCTION = 2
"""TVM's number for an axis that is summed over."""

LANES = 8
"""Values along the innermost axis of a tile; twice as many if that divides the axis."""

ROWS = 8
"""Output channels in a tile: each value that is read is used this many times."""

WORTH_A_THREAD = 4096
"""Below this many values, waking the other threads costs more than it saves."""


def schedule_pass() -> Any:
    """Return the pass that schedules the functions it can, and leaves the others unchanged."""
    from tvm.s_tir import dlight

    class VectorizeAndParallelize(dlight.base.ScheduleRule):
        def apply(self, func: Any, target: Any, tunable: bool) -> Any:
            return scheduled(func)

    return dlight.ApplyDefaultSchedule(VectorizeAndParallelize())


def scheduled(func: Any) -> Any:
    """Return a schedule of this function, or None if none is known; it then runs unscheduled."""
    from tvm import s_tir

    schedule = s_tir.Schedule(func)
    try:
        _apply(schedule)
    except (s_tir.ScheduleError, _UnknownFormError):
        return None
    return schedule


class _UnknownFormError(Exception):
    """Loops that this module has no schedule for."""


def _apply(schedule: "s_tir.Schedule") -> None:
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    summing = [block for block in blocks if _is_reduction(schedule, block)]
    last = blocks.index(summing[-1]) if summing else -1
    epilogue = _inlined(schedule, blocks[last + 1 :])
    fused = epilogue[0] if summing and len(epilogue) == 1 else None
    if fused is not None and not _same_loops(schedule, summing[-1], fused):
        fused = None
    for block in blocks[: last + 1]:
        if _is_copy(schedule, block):
            schedule.compute_inline(block)
        elif not _is_reduction(schedule, block):
            _elementwise(schedule, block)
    for block in epilogue if fused is None else []:
        _elementwise(schedule, block)
    for block in summing:
        _tiled(schedule, block, fused if block is summing[-1] else None)


def _is_reduction(schedule: "s_tir.Schedule", block: Any) -> bool:
    return any(axis.iter_type == _REDUCTION for axis in schedule.get(block).iter_vars)


def _is_copy(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block only copies, as the padding in front of a pointwise convolution does."""
    body = schedule.get(block).body
    # TVM 0.27 has no class for a load that works with isinstance.
    return type(body).__name__ == "BufferStore" and type(body.value).__name__ == "BufferLoad"


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
    spatial = [_extent(schedule, loop) for loop in _loops(schedule, block)[0]]
    return spatial == [_extent(schedule, loop) for loop in schedule.get_loops(other)]


def _loops(schedule: "s_tir.Schedule", block: Any) -> tuple[list[Any], list[Any]]:
    """Return the loops over a block's outputs, and those that sum."""
    loops, axes = schedule.get_loops(block), schedule.get(block).iter_vars
    if len(loops) != len(axes):
        raise _UnknownFormError("the block has loops that are none of its axes")
    pairs = list(zip(loops, axes, strict=True))
    summing = [loop for loop, axis in pairs if axis.iter_type == _REDUCTION]
    return [loop for loop, axis in pairs if axis.iter_type != _REDUCTION], summing


def _extent(schedule: "s_tir.Schedule", loop: Any) -> int:
    try:
        return int(schedule.get(loop).extent)
    except TypeError as error:
        raise _UnknownFormError("the loop's length is only known at run time") from error


def _elementwise(schedule: "s_tir.Schedule", block: Any) -> None:
    """Vectorize a block that computes each value by itself, and spread it over the threads."""
    if not schedule.get_loops(block):
        return
    # Not all loops fused: indices of broadcast values would then need divisions.
    *outer, inner = schedule.get_loops(block)
    count = _extent(schedule, inner)
    for loop in outer:
        count *= _extent(schedule, loop)
    if not _is_conditional(schedule, block):
        width = _divisor(_extent(schedule, inner), 8 * LANES)
        over, within = schedule.split(inner, [None, width])
        schedule.vectorize(within)
        outer = [*outer, over]
    if count >= WORTH_A_THREAD and outer:
        schedule.parallel(schedule.fuse(*outer))


def _is_conditional(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block reads conditionally, as padding does; vectorizing that is slower."""
    return "if_then_else" in str(schedule.get(block).body)


def _tiled(schedule: "s_tir.Schedule", block: Any, epilogue: Any | None) -> None:
    """Compute a reduction in tiles of its output, each with its epilogue."""
    spatial, summing = _loops(schedule, block)
    size = 1
    for loop in spatial:
        size *= _extent(schedule, loop)
    if size == 1:
        return
    if epilogue is None:
        epilogue = schedule.cache_write(block, 0, "local")
        spatial, summing = _loops(schedule, block)
    else:
        schedule.set_scope(block, 0, "local")
    if _extent(schedule, summing[0]) == 1:
        _by_rows(schedule, block, epilogue, size)
        return
    outer = _tile(schedule, epilogue)
    schedule.compute_at(block, outer, preserve_unit_loops=True)
    loops = schedule.get_loops(block)
    tile, steps = loops[1 : 1 + len(spatial)], loops[1 + len(spatial) :]
    schedule.reorder(*steps, *tile)
    _unrolled(schedule, [loop for loop in tile if _extent(schedule, loop) > 1])
    # In this order: a block with a separate initialisation no longer counts as a reduction.
    if size >= WORTH_A_THREAD:
        schedule.parallel(outer)
    schedule.decompose_reduction(block, steps[0])


def _by_rows(schedule: "s_tir.Schedule", block: Any, epilogue: Any, size: int) -> None:
    """Compute one row at a time, for depthwise convolutions, whose channels share no inputs.

    LLVM unrolls the short reduction and vectorizes the row.
    """
    *outer, _ = schedule.get_loops(epilogue)
    row = schedule.fuse(*outer)
    schedule.compute_at(block, row)
    if size >= WORTH_A_THREAD:
        schedule.parallel(row)


def _tile(schedule: "s_tir.Schedule", block: Any) -> Any:
    """Cut a block's loops into tiles; return the loop over the tiles."""
    loops = schedule.get_loops(block)
    row, column = _row_and_column(schedule, loops)
    cut = {row: ROWS, column: LANES}
    outer, inner = [], []
    for at, loop in enumerate(loops):
        if at in cut:
            extent = _extent(schedule, loop)
            double = at == column and extent % (2 * LANES) == 0
            width = 2 * LANES if double else _divisor(extent, cut[at])
            over, within = schedule.split(loop, [None, width])
            inner.append(within)
            outer.append(over)
        else:
            outer.append(loop)
    schedule.reorder(*outer, *inner)
    _unrolled(schedule, inner)
    return schedule.fuse(*outer)


def _row_and_column(schedule: "s_tir.Schedule", loops: list[Any]) -> tuple[int, int]:
    """Return the two axes of a tile: the channels, and the innermost one longer than 1."""
    wide = [at for at, loop in enumerate(loops) if _extent(schedule, loop) > 1]
    column = wide[-1] if wide else len(loops) - 1
    return (wide[0] if len(wide) > 1 else -1), column


def _unrolled(schedule: "s_tir.Schedule", loops: list[Any]) -> None:
    """Unroll the loops of a tile, and make the innermost one a vector."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    for loop in loops[-1:]:
        schedule.vectorize(loop)


def _divisor(number: int, limit: int) -> int:
    """Return the largest divisor up to the limit; tiles that do not divide evenly need guards."""
    return max(each for each in range(1, min(number, limit) + 1) if number % each == 0)
