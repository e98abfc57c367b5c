"""Codes integers in about as many bits as their entropy, so that arrays of them decode at once.

A stream is a Huffman-shaped wavelet tree: each inner node has one bit for each word that passes it,
packed into bytes, and each class the codes of its words. It is decoded from the leaves to the root:
the bits of a node say which of its two sides the next word comes from. The lowest bits of fine
integers are as good as random: they are stored beside the tree, which then has few levels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.graph.codebooks import Book, Tree, Words, design, frequencies
from seqto.graph.grids import entropy

_LOW_BITS, _ABOVE = 4, 3.0
"""How many low bits are stored beside the tree, if so much entropy is left above them.

For less fine integers the tree alone takes less memory to decode."""

FILL = 8
"""Every node and class has a multiple of this many words: no byte is filled in part."""


@dataclass(frozen=True, eq=False)
class Stream:
    """A coded array of integers.

    `planes` are the bits of the tree's inner nodes, each before its two sides; `codes` those of the
    classes, and `counts` their words; `escapes` are the words that are written out. Each is filled
    up with words that nothing reads. `low` has the lowest `low_bits` of all integers, and the words
    are what is above them.
    """

    length: int
    book: Book
    planes: tuple[np.ndarray, ...]
    codes: tuple[np.ndarray, ...]
    counts: tuple[int, ...]
    escapes: np.ndarray
    low: np.ndarray
    low_bits: int

    @property
    def filled(self) -> int:
        """How many integers the words make, with those that fill it up."""
        return _integers(self.book, self.planes, self.counts, self.escapes)

    @property
    def size(self) -> int:
        """The bytes of everything that has to be stored."""
        arrays = (*self.planes, *self.codes, self.escapes, self.book.words, self.low)
        return sum(each.nbytes for each in arrays)


def encode(integers: np.ndarray) -> Stream:
    """Return an array of integers, which is not empty, as a stream."""
    flat = integers.reshape(-1)
    low_bits = _low_bits(flat)
    words, book, keys = design(flat >> low_bits)
    numbers = _numbers(words, keys)
    escapes = words.rows[numbers < 0]
    starts = book.starts
    classes = np.searchsorted(starts[1:], numbers, side="right")
    classes[numbers < 0] = book.escape
    planes: list[np.ndarray] = []
    codes: dict[int, np.ndarray] = {}
    _split(book.tree, classes.astype(np.int16), numbers, planes, codes)
    packed = [_packed(codes[at] - starts[at], width) for at, width in enumerate(book.widths)]
    counts = tuple(_filled(len(codes[at])) for at in range(len(book.widths)))
    written = np.pad(escapes, ((0, -len(escapes) % FILL), (0, 0)))
    low = np.zeros(_integers(book, planes, counts, written), np.uint8)
    low[: len(flat)] = flat & (2**low_bits - 1)
    return Stream(
        len(flat),
        book,
        tuple(planes),
        tuple(packed),
        counts,
        written,
        _packed(low, low_bits),
        low_bits,
    )


def _low_bits(integers: np.ndarray) -> int:
    """Return how many of the lowest bits to store beside the tree."""
    return _LOW_BITS if entropy(frequencies(integers)) >= _LOW_BITS + _ABOVE else 0


def _integers(
    book: Book, planes: Sequence[np.ndarray], counts: Sequence[int], escapes: np.ndarray
) -> int:
    words = FILL * len(planes[0]) if planes else sum(counts) + len(escapes)
    return words * int(book.words.shape[1])


def decode(stream: Stream) -> np.ndarray:
    """Return the integers of a stream, in one dimension."""
    rows = _merged(stream, stream.book.tree, iter(stream.planes))
    high = rows.reshape(-1)[: stream.length].astype(np.int32)
    low = unpacked(stream.low, stream.low_bits, stream.filled)[: stream.length]
    return np.asarray((high << stream.low_bits) + low)


def _numbers(words: Words, keys: np.ndarray) -> np.ndarray:
    """Return the number of each word in the book, or -1 if it is written out."""
    # One entry more: words without a key have the key -1.
    numbers = np.full(words.base ** words.rows.shape[1] + 1, -1, np.int32)
    numbers[keys] = np.arange(len(keys), dtype=np.int32)
    return np.asarray(numbers[words.keys])


def _split(
    tree: Tree,
    classes: np.ndarray,
    numbers: np.ndarray,
    planes: list[np.ndarray],
    codes: dict[int, np.ndarray],
) -> None:
    """Collect the planes of this tree, and the words of its classes."""
    if isinstance(tree, int):
        codes[tree] = numbers
        return
    zero, one = tree
    is_right = np.zeros(1 + max(_leaves(tree)), bool)
    is_right[list(_leaves(one))] = True
    right = is_right[classes]
    planes.append(np.packbits(right))
    _split(zero, classes[~right], numbers[~right], planes, codes)
    _split(one, classes[right], numbers[right], planes, codes)


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


def _merged(stream: Stream, tree: Tree, planes: Iterator[np.ndarray]) -> np.ndarray:
    """Return the words below this tree."""
    if isinstance(tree, int):
        return _class_words(stream, tree)
    right = np.unpackbits(next(planes)).astype(bool)
    zero = _merged(stream, tree[0], planes)
    one = _merged(stream, tree[1], planes)
    ranks = np.where(right, len(zero) + np.cumsum(right) - 1, np.cumsum(~right) - 1)
    return np.asarray(np.concatenate([zero, one])[ranks])


def _class_words(stream: Stream, at: int) -> np.ndarray:
    book = stream.book
    if at == book.escape:
        return stream.escapes
    codes = unpacked(stream.codes[at], book.widths[at], stream.counts[at])
    return np.asarray(book.words[book.starts[at] :][codes])


def _filled(count: int) -> int:
    return -(-count // FILL) * FILL
