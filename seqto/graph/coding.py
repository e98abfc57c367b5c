"""Codes integers in about as many bits as their entropy, so that arrays of them decode at once.

A stream is a Huffman-shaped wavelet tree: each inner node has one bit for each word that passes it,
packed into bytes, and each class the codes of its words. It is decoded from the root to the leaves:
the bits of a node say on which of its two sides each of its places goes on, and a class fills the
places that reach it. The lowest bits of fine integers are as good as random: they are stored beside
the tree, which then has few levels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqto.graph.codebooks import Book, Tree, Words, design, frequencies, narrowest
from seqto.graph.grids import entropy

_ABOVE = 2.85
"""How much entropy is left for the tree, and up to 1 more.

Normally distributed integers then take less than with another number of low bits."""

_PLANES = (4, 2, 1)
"""How many low bits are stored together: a whole number of codes fits into a byte."""

FILL = 8
"""Every class and node has a multiple of this many words: no byte is filled in part."""


@dataclass(frozen=True, eq=False)
class LowBits:
    """Some of the low bits of all integers: `width` bits of each, and how many bits are below."""

    codes: np.ndarray
    width: int
    shift: int


@dataclass(frozen=True, eq=False)
class Stream:
    """A coded array of integers.

    `planes` are the bits of the tree's inner nodes, each before its two sides; `codes` those of the
    classes, and `counts` their words; `words` are those of the book, and `escapes` those that are
    written out, with zeros for the bits that are in `low`. Each class is filled up with words that
    are behind all others.
    """

    length: int
    book: Book
    words: np.ndarray
    planes: tuple[np.ndarray, ...]
    codes: tuple[np.ndarray, ...]
    counts: tuple[int, ...]
    escapes: np.ndarray
    low: tuple[LowBits, ...]

    @property
    def places(self) -> int:
        """How many words there are, with those that fill up classes."""
        return sum(self.counts) + len(self.escapes)

    @property
    def filled(self) -> int:
        """How many integers the words make, with those that fill up classes."""
        return self.places * int(self.words.shape[1])

    @property
    def size(self) -> int:
        """The bytes of everything that has to be stored."""
        low = [each.codes for each in self.low]
        return sum(
            each.nbytes for each in (*self.planes, *self.codes, *low, self.escapes, self.words)
        )


def encode(integers: np.ndarray) -> Stream:
    """Return an array of integers, which is not empty, as a stream."""
    flat = integers.reshape(-1)
    bits = _low_bits(flat)
    words, book, keys = design(flat >> bits)
    numbers = _numbers(words, keys)
    is_escape = numbers < 0
    escapes = words.rows[is_escape]
    starts = book.starts
    # By a table, with the class of what is written out at the end, where -1 finds it.
    every = np.arange(book.escape + 1, dtype=np.uint8 if book.escape < 256 else np.int16)
    classes = np.repeat(every, [*np.diff(starts), 1])[numbers]
    # Sorted by class, and within a class as they come.
    counted = np.bincount(classes, minlength=len(every))
    codes = np.split(numbers[np.argsort(classes, kind="stable")], np.cumsum(counted)[:-1])
    planes: list[np.ndarray] = []
    _split(book.tree, classes, planes)
    packed = [_packed(codes[at] - starts[at], width) for at, width in enumerate(book.widths)]
    counts = tuple(_filled(len(codes[at])) for at in range(len(book.widths)))
    written = np.pad(escapes, ((0, -len(escapes) % FILL), (0, 0)))
    kind = narrowest(flat)
    places = sum(counts) + len(written)
    return Stream(
        len(flat),
        book,
        book.words.astype(kind) << bits,
        tuple(planes),
        tuple(packed),
        counts,
        written.astype(kind) << bits,
        _low(flat, bits, places * words.rows.shape[1]),
    )


def _low_bits(integers: np.ndarray) -> int:
    """Return how many of the lowest bits to store beside the tree."""
    fine = int(entropy(frequencies(integers)) - _ABOVE)
    return min(max(fine, 0), sum(_PLANES))


def _low(flat: np.ndarray, bits: int, filled: int) -> tuple[LowBits, ...]:
    """Return so many low bits of the integers, filled up to so many."""
    rest = np.zeros(filled, np.uint8)
    rest[: len(flat)] = flat & (2**bits - 1)
    found, shift = [], bits
    for width in _PLANES:
        if bits & width:
            shift -= width
            found.append(LowBits(_packed(rest >> shift & (2**width - 1), width), width, shift))
    return tuple(found)


def decode(stream: Stream) -> np.ndarray:
    """Return the integers of a stream, in one dimension."""
    rows = np.zeros((stream.places, stream.words.shape[1]), stream.words.dtype)
    for at, places in _placed(stream.book.tree, np.arange(stream.places), iter(stream.planes)):
        rows[places] = _class_words(stream, at)
    flat = rows.reshape(-1).astype(np.int32)
    for each in stream.low:
        flat |= unpacked(each.codes, each.width, len(flat)).astype(np.int32) << each.shift
    return np.asarray(flat[: stream.length])


def _numbers(words: Words, keys: np.ndarray) -> np.ndarray:
    """Return the number of each word in the book, or -1 if it is written out."""
    # One entry more: words without a key have the key -1.
    numbers = np.full(words.base ** words.rows.shape[1] + 1, -1, np.int32)
    numbers[keys] = np.arange(len(keys), dtype=np.int32)
    return np.asarray(numbers[words.keys])


def _split(tree: Tree, classes: np.ndarray, planes: list[np.ndarray]) -> int:
    """Collect the planes of this tree; return how many words it has, with those that fill it up."""
    if isinstance(tree, int):
        return _filled(len(classes))
    zero, one = tree
    is_right = np.zeros(1 + max(_leaves(tree)), bool)
    is_right[list(_leaves(one))] = True
    right = is_right[classes]
    planes.append(right)
    own = len(planes) - 1
    zeros = _split(zero, classes[~right], planes)
    ones = _split(one, classes[right], planes)
    # What fills up the classes comes last.
    bits = np.zeros(zeros + ones, bool)
    bits[: len(right)] = right
    bits[len(bits) - (ones - np.count_nonzero(right)) :] = True
    planes[own] = np.packbits(bits)
    return zeros + ones


def _leaves(tree: Tree) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        for side in tree:
            yield from _leaves(side)


def _packed(codes: np.ndarray, width: int) -> np.ndarray:
    """Return codes of so many bits as bytes; the first is in the highest bits."""
    filled = np.zeros(_filled(len(codes)), np.uint8)
    filled[: len(codes)] = codes
    if not width:
        return filled[:0]
    shifts = np.arange(8 - width, -1, -width, dtype=np.uint8)
    parts = filled.reshape(-1, len(shifts)) << shifts
    return np.asarray(np.bitwise_or.reduce(parts, axis=1))


def unpacked(codes: np.ndarray, width: int, count: int) -> np.ndarray:
    """Return the codes that bytes hold."""
    if not width:
        return np.zeros(count, np.uint8)
    shifts = np.arange(8 - width, -1, -width, dtype=np.uint8)
    return np.asarray(codes[:, None] >> shifts & (2**width - 1)).reshape(-1)


def _placed(
    tree: Tree, places: np.ndarray, planes: Iterator[np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the classes below this tree, and the places of their words."""
    if isinstance(tree, int):
        yield tree, places
        return
    right = np.unpackbits(next(planes)).astype(bool)
    yield from _placed(tree[0], places[~right], planes)
    yield from _placed(tree[1], places[right], planes)


def _class_words(stream: Stream, at: int) -> np.ndarray:
    book = stream.book
    if at == book.escape:
        return stream.escapes
    codes = unpacked(stream.codes[at], book.widths[at], stream.counts[at])
    return np.asarray(stream.words[book.starts[at] :][codes])


def _filled(count: int) -> int:
    return -(-count // FILL) * FILL
