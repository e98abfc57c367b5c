"""The functions that decode coded weights, which a model brings along.

They need only standard operations on constants, so that ONNX Runtime folds all of them when it
loads a model. What they make stays in memory until all of it is folded. So all that is done for
each word of each node of a tree is to find its place: 7.5 bytes, of which 4 are the place itself.
Integers have a byte, wide ones two or four, until they are floats.
"""

import functools
import re
import string

import numpy as np
import onnx
from onnx import parser

from seqto.graph.codebooks import LENGTHS
from seqto.graph.grids import EIGHTHS

DOMAIN = "seqto"
OPSET = 21
"""The first opset that the functions can be of."""

SHIFTS = np.arange(7, -1, -1, dtype=np.uint8)
"""What Tables is given, so that it reads constants as every other node does."""

_TABLES = """
Tables (shifts_of_one) => (sides, one, two, four) {
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
    one = BitwiseAnd (shifted_by_one, mask_of_one)
    two = BitwiseAnd (shifted_by_two, mask_of_two)
    four = BitwiseAnd (shifted_by_four, mask_of_four)
    sides = Cast <to = 9> (one)
}
"""
"""What each byte says: its bits as sides, and its codes."""

_PLACES = """
Places (count) => (places) {
    first = Constant <value = int32 {0}> ()
    by = Constant <value = int32 {1}> ()
    places = Range (first, count, by)
}
"""
"""The places of a stream's words."""

_SIDES = """
Sides (bits, places, sides) => (zero, one) {
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (bits)
    picked = Gather (sides, at)
    right = Reshape (picked, any)
    left = Not (right)
    zero = Compress <axis = 0> (places, left)
    one = Compress <axis = 0> (places, right)
}
"""
"""The places of a node's two sides: its bits say on which of them each place goes on."""

_JOIN = """
Join (high, codes, unpacked, shift) => (integers) {
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (codes)
    shifted = BitShift <direction = "LEFT"> (unpacked, shift)
    table = CastLike (shifted, high)
    picked = Gather (table, at)
    low = Reshape (picked, any)
    integers = BitwiseOr (high, low)
}
"""
"""Integers with some of their low bits, which were zero."""

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


_LEAF = """
Leaf (codes, unpacked, words*) => (parts*) {
    any = Constant <value_ints = [-1]> ()
    at = Cast <to = 6> (codes)
    number = Cast <to = 6> (unpacked)
    table* = Gather (words*, number)
    picked* = Gather (table*, at)
    parts* = Reshape (picked*, any)
}
"""
"""The words of a class whose codes have 1, 2 or 4 bits."""

_BYTES = """
Bytes (codes, words*) => (parts*) {
    at = Cast <to = 6> (codes)
    parts* = GatherElements (words*, at)
}
"""
"""The words of a class whose codes have 8 bits. Gather would take ten times as long."""

_FILL = """
Fill (count, words*) => (parts*) {
    parts* = Expand (words*, count)
}
"""
"""The words of a class that has only one."""

_WORDS = """
Words (places, parts*) => (integers) {
    any = Constant <value_ints = [-1]> ()
    placed* = ScatterElements (parts*, places, parts*)
    joined = Concat <axis = 0> (placed*)
    each = Constant <value_ints = [LENGTH, -1]> ()
    apart = Reshape (joined, each)
    words = Transpose <perm = [1, 0]> (apart)
    integers = Reshape (words, any)
}
"""
"""The integers of words, given their places.

What is scattered into only has to be as long as the result: all its values are replaced.
"""


def of_length(function: str, length: int) -> str:
    """Return the name of the function for words of so many integers."""
    return f"{function}{length}"


def _of_length(body: str, length: int) -> str:
    """Return a function for words of so many integers, which are apart: names* are so many names.

    A line that makes one of them is there once for each.
    """
    lines = []
    for line in body.replace("LENGTH", str(length)).strip().split("\n"):
        made, _, rest = line.partition("=")
        if rest and "*" in made and "=>" not in line:
            lines += [line.replace("*", str(at)) for at in range(length)]
        else:
            lines.append(re.sub(r"(\w+)\*", lambda name: _names(name[1], length), line))
    return "\n".join(lines).replace(" (", f"{length} (", 1)


def _names(name: str, length: int) -> str:
    return ", ".join(f"{name}{at}" for at in range(length))


@functools.cache
def functions(opset: int) -> tuple[onnx.FunctionProto, ...]:
    """Return all functions in this opset; they call no other ones."""
    scales = _SCALES.format(eighths=_numbers(EIGHTHS))
    of_words = [
        _of_length(body, length) for length in LENGTHS for body in (_LEAF, _BYTES, _FILL, _WORDS)
    ]
    bodies = (_TABLES, _PLACES, _SIDES, *of_words, _JOIN, _WEIGHT, scales)
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
