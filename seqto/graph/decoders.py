"""The functions that decode coded weights, which a model brings along.

They need only standard operations on constants, so that ONNX Runtime folds all of them when it
loads a model. What they make stays in memory until all of it is folded: a node's `index` and what
leads to it, of 4 bytes each, are most of that.
"""

import functools
import string

import numpy as np
import onnx
from onnx import parser

from seqto.graph.grids import EIGHTHS

DOMAIN = "seqto"
OPSET = 21
"""The first opset that the functions can be of."""

SHIFTS = np.arange(7, -1, -1, dtype=np.uint8)
"""What Tables is given, so that it reads constants as every other node does."""

_TABLES = """
Tables (shifts_of_one) => (ranks, sides, sums, one, two, four) {
    first = Constant <value_int = 0> ()
    end = Constant <value_int = 256> ()
    by = Constant <value_int = 1> ()
    axis = Constant <value_ints = [1]> ()
    numbers = Range (first, end, by)
    wide = Unsqueeze (numbers, axis)
    bytes = Cast <to = 2> (wide)
    shifts_of_two = Constant <value = uint8[4] {6, 4, 2, 0}> ()
    shifts_of_four = Constant <value = uint8[2] {4, 0}> ()
    mask_of_one = Constant <value = uint8[1] {1}> ()
    mask_of_two = Constant <value = uint8[1] {3}> ()
    mask_of_four = Constant <value = uint8[1] {15}> ()
    shifted_by_one = BitShift <direction = "RIGHT"> (bytes, shifts_of_one)
    shifted_by_two = BitShift <direction = "RIGHT"> (bytes, shifts_of_two)
    shifted_by_four = BitShift <direction = "RIGHT"> (bytes, shifts_of_four)
    bits = BitwiseAnd (shifted_by_one, mask_of_one)
    pairs = BitwiseAnd (shifted_by_two, mask_of_two)
    halves = BitwiseAnd (shifted_by_four, mask_of_four)
    one = Cast <to = 6> (bits)
    two = Cast <to = 6> (pairs)
    four = Cast <to = 6> (halves)
    sides = Cast <to = 9> (bits)
    flipped = Not (sides)
    zeros = Cast <to = 6> (flipped)
    ones_before = CumSum <exclusive = 1> (one, axis)
    zeros_before = CumSum <exclusive = 1> (zeros, axis)
    ranks = Where (sides, ones_before, zeros_before)
    sums = ReduceSum (one, axis)
}
"""
"""What each byte says: its bits as sides, their ranks among equals, their sum; its codes."""

_MERGE = """
Merge (bits, zero, one, ranks, sides, sums) => (rows) {
    start = Constant <value_ints = [0]> ()
    eight = Constant <value = int32[1] {8}> ()
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (bits)
    ones = Gather (sums, at)
    zeros = Sub (eight, ones)
    ones_before = CumSum <exclusive = 1> (ones, start)
    zeros_before = CumSum <exclusive = 1> (zeros, start)
    size = Shape <start = 0, end = 1> (zero)
    offset = Cast <to = 6> (size)
    behind = Add (ones_before, offset)
    side = Gather (sides, at)
    base = Where (side, behind, zeros_before)
    rank = Gather (ranks, at)
    index = Add (base, rank)
    both = Concat <axis = 0> (zero, one)
    picked = Gather (both, index)
    length = Shape <start = 1> (zero)
    shape = Concat <axis = 0> (any, length)
    rows = Reshape (picked, shape)
}
"""
"""The words of a node: its bits say which side each comes from."""

_LEAF = """
Leaf (codes, words, unpacked) => (rows) {
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (codes)
    table = Gather (words, unpacked)
    picked = Gather (table, at)
    length = Shape <start = 1> (words)
    shape = Concat <axis = 0> (any, length)
    rows = Reshape (picked, shape)
}
"""
"""The words of a class whose codes have 1, 2 or 4 bits."""

_BYTES = """
Bytes (codes, words) => (rows) {
    at = Cast <to = 6> (codes)
    rows = Gather (words, at)
}
"""
"""The words of a class whose codes have 8 bits."""

_FILL = """
Fill (count, words) => (rows) {
    one = Constant <value_ints = [1]> ()
    shape = Concat <axis = 0> (count, one)
    rows = Expand (words, shape)
}
"""
"""The words of a class that has only one."""

_JOIN = """
Join (high, codes, unpacked, times) => (integers) {
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (codes)
    narrow = Cast <to = 3> (unpacked)
    picked = Gather (narrow, at)
    flat = Reshape (picked, any)
    low = Cast <to = 6> (flat)
    wide = Cast <to = 6> (high)
    shifted = Mul (wide, times)
    integers = Add (shifted, low)
}
"""
"""Integers of what is above their low bits, and these."""

_WEIGHT = """
Weight (integers, shape, steps, largest, scales) => (weight) {
    at = Cast <to = 6> (steps)
    relative = Gather (scales, at)
    scale = Mul (relative, largest)
    shaped = Reshape (integers, shape)
    floats = Cast <to = 1> (shaped)
    weight = Mul (floats, scale)
}
"""
"""A weight of its integers and its rows' steps."""

_SCALES = """
Scales (octaves) => (scales) {{
    any = Constant <value_ints = [-1]> ()
    last = Constant <value_ints = [1]> ()
    eighths = Constant <value_floats = [{eighths}]> ()
    column = Unsqueeze (octaves, last)
    table = Mul (column, eighths)
    scales = Reshape (table, any)
}}
"""
"""The steps that bytes stand for."""


@functools.cache
def functions(opset: int) -> tuple[onnx.FunctionProto, ...]:
    """Return all functions in this opset; they call no other ones."""
    scales = _SCALES.format(eighths=_numbers(EIGHTHS))
    bodies = (_TABLES, _MERGE, _LEAF, _BYTES, _FILL, _JOIN, _WEIGHT, scales)
    head = f'<domain: "{DOMAIN}", opset_import: ["": {opset}]>'
    return tuple(_shortened(parser.parse_function(head + body)) for body in bodies)


def _numbers(values: np.ndarray) -> str:
    """Return float32 numbers in digits that mean exactly them."""
    return ", ".join(f"{value:.9e}" for value in values)


def _shortened(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """Return the function with a letter or two for each name inside: they are in every file."""
    names: dict[str, str] = {}
    for node in function.node:
        for name in (*node.input, *node.output):
            names.setdefault(name, _short(len(names)))
    for node in function.node:
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    function.input[:] = [names[name] for name in function.input]
    function.output[:] = [names[name] for name in function.output]
    return function


def _short(number: int) -> str:
    letters = string.ascii_lowercase
    return letters[number] if number < len(letters) else f"a{number}"
