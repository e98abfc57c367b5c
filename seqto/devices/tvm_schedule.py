"""A schedule for TVM's CPU code that uses vector units and all cores, without tuning.

TVM lowers an operation to plain nested loops, which its compiler neither vectorizes nor spreads
over threads. The rule here computes one tile of the output at a time. The tile stays in registers
during the reduction, and what is fused behind it (bias, activation, quantization) is applied there.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm import s_tir

_REDUCTION = 2
"""TVM's number for an axis that is summed over."""

_LOADS = ("TensorLoad", "BufferLoad")
"""TVM's names for reading a value."""

LANES = 8
"""Values in a vector register; twice as many where the CPU has AVX-512."""

REGISTERS = 12
"""Vectors of sums that stay in registers, of 16; twice as many where the CPU has AVX-512."""

ROWS = 16
"""The most rows in a tile: each value that is read is used this many times."""

WORTH_A_THREAD = 4096
"""Below this many values, waking the other threads costs more than it saves."""


@dataclass(frozen=True)
class Vectors:
    """What a CPU's registers hold."""

    lanes: int = LANES
    registers: int = REGISTERS

    def width(self, extent: int) -> int:
        """Return how many values of an axis to compute at a time: one or two vectors."""
        # Tiles that do not divide evenly need guards, and LLVM is slow with a vector and a half.
        whole = [each * self.lanes for each in (2, 1) if extent % (each * self.lanes) == 0]
        return whole[0] if whole else max(_divisors(extent, self.lanes))

    def rows(self, extent: int, width: int) -> int:
        """Return how many rows of this width to compute at a time."""
        return max(_divisors(extent, min(ROWS, self.registers // -(-width // self.lanes))))


def vectors_of(target: Any) -> Vectors:
    """Return what the registers of the target's CPU hold."""
    from tvm.target import codegen

    wide = codegen.target_has_features("avx512f", target)
    return Vectors(2 * LANES, 2 * REGISTERS) if wide else Vectors()


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
    except (s_tir.ScheduleError, _UnknownFormError):
        return None
    return schedule


class _UnknownFormError(Exception):
    """Loops that this module has no schedule for."""


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
    if len(before) == len(summing) == 1 and _by_pictures(schedule, summing[0]):
        # The pictures of a depthwise convolution are padded there, one at a time.
        padding = before.pop()
    for block in [*before, *(epilogue if fused is None else [])]:
        _elementwise(schedule, block, vectors)
    for block in summing:
        _tiled(schedule, block, fused if block is summing[-1] else None, padding, vectors)


def _is_reduction(schedule: "s_tir.Schedule", block: Any) -> bool:
    return any(axis.iter_type == _REDUCTION for axis in schedule.get(block).iter_vars)


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
    spatial = [_extent(schedule, loop) for loop in _loops(schedule, block)[0]]
    return spatial == [_extent(schedule, loop) for loop in schedule.get_loops(other)]


def _loops(
    schedule: "s_tir.Schedule", block: Any, loops: list[Any] | None = None
) -> tuple[list[Any], list[Any]]:
    """Return the loops over a block's outputs, and those that sum."""
    loops = schedule.get_loops(block) if loops is None else loops
    axes = schedule.get(block).iter_vars
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


def _elementwise(schedule: "s_tir.Schedule", block: Any, vectors: Vectors) -> None:
    """Vectorize a block that computes each value by itself, and spread it over the threads."""
    if not schedule.get_loops(block):
        return
    # Not all loops fused: indices of broadcast values would then need divisions.
    *outer, inner = schedule.get_loops(block)
    count = _extent(schedule, inner)
    for loop in outer:
        count *= _extent(schedule, loop)
    if not _is_conditional(schedule, block):
        width = max(_divisors(_extent(schedule, inner), 4 * vectors.lanes))
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
    for loop in _loops(schedule, block)[0]:
        size *= _extent(schedule, loop)
    if size == 1:
        return
    if epilogue is None:
        epilogue = schedule.cache_write(block, 0, "local")
    else:
        schedule.set_scope(block, 0, "local")
    if _is_pointwise(schedule, block):
        _flatten(schedule, block, epilogue)
    by_pictures = _by_pictures(schedule, block)
    if by_pictures and _is_strided(schedule, block):
        _by_rows(schedule, block, epilogue, padding, size)
        return
    outer, at = _tile(schedule, epilogue, vectors, by_pictures)
    schedule.compute_at(block, at, preserve_unit_loops=True)
    outside = 3 if by_pictures else 1
    tile, steps = _loops(schedule, block, schedule.get_loops(block)[outside:])
    schedule.reorder(*steps, *tile)
    _unrolled(schedule, [loop for loop in tile if _extent(schedule, loop) > 1])
    if padding is not None:
        schedule.compute_at(padding, outer)
    # In this order: a block with a separate initialisation no longer counts as a reduction.
    if size >= WORTH_A_THREAD:
        schedule.parallel(outer)
    schedule.decompose_reduction(block, steps[0])


def _by_pictures(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether each output picture is made of one of the input, as by a depthwise convolution.

    Its channels share no inputs, so a tile has rows of one picture.
    """
    if not _is_convolution(schedule, block):
        return False
    _, summing = _loops(schedule, block)
    return _extent(schedule, summing[0]) == 1 and _input_shape(schedule, block)[1] != 1


def _is_pointwise(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether each pixel of the output is made of the same pixel of the input."""
    if not _is_convolution(schedule, block):
        return False
    spatial, summing = _loops(schedule, block)
    picture = [_extent(schedule, loop) for loop in spatial[2:]]
    window = [_extent(schedule, loop) for loop in summing[1:]]
    return window == [1, 1] and _input_shape(schedule, block)[2:] == picture


def _is_convolution(schedule: "s_tir.Schedule", block: Any) -> bool:
    """Tell whether a block has the axes of a convolution of pictures."""
    spatial, summing = _loops(schedule, block)
    return len(spatial) == 4 and len(summing) == 3 and len(_input_shape(schedule, block)) == 4


def _input_shape(schedule: "s_tir.Schedule", block: Any) -> list[Any]:
    # A length that is only known at run time has no value.
    return [getattr(size, "value", None) for size in schedule.get(block).reads[0].source.shape]


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
    width = vectors.width(_extent(schedule, loops[column]))
    cut = {column: width}
    if row >= 0:
        cut[row] = vectors.rows(_extent(schedule, loops[row]), width)
    outer, inner = [], []
    for at, loop in enumerate(loops):
        if at in cut:
            over, within = schedule.split(loop, [None, cut[at]])
            inner.append(within)
            outer.append(over)
        else:
            outer.append(loop)
    schedule.reorder(*outer, *inner)
    _unrolled(schedule, inner)
    if by_pictures:
        return schedule.fuse(*outer[:2]), outer[3]
    whole = schedule.fuse(*outer)
    return whole, whole


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


def _divisors(number: int, limit: int) -> list[int]:
    return [each for each in range(1, min(number, limit) + 1) if number % each == 0]
