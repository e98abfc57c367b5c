"""What the schedules of TVM's CPU code share: the CPU's registers, and questions about loops."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm import s_tir

REDUCTION = 2
"""TVM's number for an axis that is summed over."""

LANES = 8
"""Values in a vector register; twice as many where the CPU has AVX-512."""

REGISTERS = 12
"""Vectors of sums that stay in registers, of 16; twice as many where the CPU has AVX-512."""

ROWS = 16
"""The most rows in a tile: each value that is read is used this many times."""

WORTH_A_THREAD = 4096
"""Below this many values, waking the other threads costs more than it saves."""


class UnknownFormError(Exception):
    """Loops that there is no schedule for."""


@dataclass(frozen=True)
class Vectors:
    """What a CPU's registers hold."""

    lanes: int = LANES
    registers: int = REGISTERS

    def width(self, extent: int) -> int:
        """Return how many values of an axis to compute at a time: one or two vectors."""
        # Tiles that do not divide evenly need guards, and LLVM is slow with a vector and a half.
        whole = [each * self.lanes for each in (2, 1) if extent % (each * self.lanes) == 0]
        return whole[0] if whole else max(divisors(extent, self.lanes))

    def rows(self, extent: int, width: int) -> int:
        """Return how many rows of this width to compute at a time."""
        return max(divisors(extent, min(ROWS, self.registers // -(-width // self.lanes))))

    def block(self, channels: int) -> int:
        """Return how many channels to pack into a vector, 1 if they do not fill vectors."""
        whole = [each for each in (self.lanes, LANES) if channels % each == 0]
        return whole[0] if whole else 1

    def tile(self, pixels: int, vectors: int) -> tuple[int, int]:
        """Return how many pixels and vectors of channels to compute at a time.

        Of all tiles that fit the registers, the one with the fewest loads for each product.
        """
        fitting = [
            (rows, columns)
            for rows in divisors(pixels, self.registers)
            for columns in divisors(vectors, self.registers // rows)
        ]
        return max(fitting, key=reuse)


def reuse(tile: tuple[int, int]) -> float:
    """Return how many products of a tile there are for each value that is loaded."""
    rows, columns = tile
    return rows * columns / (rows + columns)


def vectors_of(target: Any) -> Vectors:
    """Return what the registers of the target's CPU hold."""
    from tvm.target import codegen

    wide = codegen.target_has_features("avx512f", target)
    return Vectors(2 * LANES, 2 * REGISTERS) if wide else Vectors()


def loops_of(
    schedule: "s_tir.Schedule", block: Any, loops: list[Any] | None = None
) -> tuple[list[Any], list[Any]]:
    """Return the loops over a block's outputs, and those that sum."""
    loops = schedule.get_loops(block) if loops is None else loops
    axes = schedule.get(block).iter_vars
    if len(loops) != len(axes):
        raise UnknownFormError("the block has loops that are none of its axes")
    pairs = list(zip(loops, axes, strict=True))
    summing = [loop for loop, axis in pairs if axis.iter_type == REDUCTION]
    return [loop for loop, axis in pairs if axis.iter_type != REDUCTION], summing


def extent(schedule: "s_tir.Schedule", loop: Any) -> int:
    """Return how often a loop runs."""
    try:
        return int(schedule.get(loop).extent)
    except TypeError as error:
        raise UnknownFormError("the loop's length is only known at run time") from error


def input_shape(schedule: "s_tir.Schedule", block: Any) -> list[Any]:
    """Return the lengths of the axes of what a block reads first."""
    # A length that is only known at run time has no value.
    return [getattr(size, "value", None) for size in schedule.get(block).reads[0].source.shape]


def unroll(schedule: "s_tir.Schedule", loops: list[Any]) -> None:
    """Unroll the loops of a tile, and make the innermost one a vector."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    for loop in loops[-1:]:
        schedule.vectorize(loop)


def divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number up to a limit."""
    return [each for each in range(1, min(number, limit) + 1) if number % each == 0]
