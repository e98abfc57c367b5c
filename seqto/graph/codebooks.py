"""Designs the code for a stream of integers: short codes for frequent words of a few integers.

Words are sorted by frequency and cut into classes of 1, 2, 4, 16 or 256. A Huffman tree says which
class a word has, and a fixed number of bits which word of the class it is. That is within 1 or 2 %
of the entropy, but only the few levels of the tree, and not every bit, need places when a stream
is decoded: a place takes 7.5 bytes. Rare words are written out in a class of their own.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.graph.grids import entropy

Tree = int | tuple["Tree", "Tree"]
"""A class, or the trees of the words whose next bit is 0 and 1."""

_WIDTHS = (0, 1, 2, 4, 8)
"""The bits of a code within its class: a whole number of codes fits into a byte."""

LENGTHS = (1, 2, 3, 4, 6, 8)
"""How many integers a word may have."""

_MOST_WORDS = 4096
_MOST_KEYS = 2**20
_PIECE = 2**20
_FINE = 64
"""Up to this word, classes may start anywhere; later, at multiples of 16."""

_COARSE = 16
_CLASS_BITS = 1000
"""About how many bits the nodes and names of a class take in a model's file."""

_INDEX_PRICE = 0.1
"""What a bit of the tree counts more than others, because of the memory for its places."""

_MARGIN, _MARGINS = 0.06, (0.0, 0.03, 0.06, 0.1, 0.15, 0.25)
"""By how much a Huffman tree is deeper than the entropy says: usually, and what is tried."""


@dataclass(frozen=True, eq=False)
class Book:
    """The words of each class, one after the other, and the tree of the classes.

    `widths` are the bits of the codes in each class. The class behind the last one, if the tree has
    it, is that of the words that are written out.
    """

    words: np.ndarray
    widths: tuple[int, ...]
    tree: Tree

    @property
    def escape(self) -> int:
        """The class of the words that are written out."""
        return len(self.widths)

    @property
    def starts(self) -> list[int]:
        """Where each class starts among the words, and where the last one ends."""
        return _starts_of(self.widths)


@dataclass(frozen=True, eq=False)
class Words:
    """A stream cut into words: `keys` number them, but are -1 if an integer is far from the rest.

    `rows` are the integers of each word; the last word is filled up with zeros.
    """

    rows: np.ndarray
    keys: np.ndarray
    lowest: int
    base: int

    def of_keys(self, keys: np.ndarray) -> np.ndarray:
        """Return the words that have these keys."""
        powers = self.base ** np.arange(self.rows.shape[1])
        return (keys[:, None] // powers % self.base + self.lowest).astype(self.rows.dtype)


def frequencies(integers: np.ndarray) -> np.ndarray:
    """Return how often each integer occurs, from the lowest to the highest."""
    flat = integers.reshape(-1)
    low, high = int(flat.min(initial=0)), int(flat.max(initial=0))
    if high - low < _MOST_KEYS:
        return _counts(flat, low, high - low + 1)
    # Not for all, because it sorts them.
    return np.unique(flat, return_counts=True)[1]


def _counts(integers: np.ndarray, lowest: int, span: int) -> np.ndarray:
    """Return how often each of so many integers from the lowest on occurs."""
    counts = np.zeros(span, np.int64)
    # In pieces, because numpy counts copies of 8 bytes for each integer.
    for start in range(0, len(integers), _PIECE):
        piece = integers[start : start + _PIECE].astype(np.int64) - lowest
        counts += np.bincount(piece, minlength=span)
    return counts


def narrowest(integers: np.ndarray) -> type[np.signedinteger]:
    """Return the smallest type that holds these integers."""
    low, high = int(integers.min(initial=0)), int(integers.max(initial=0))
    fitting = (
        each
        for each in (np.int8, np.int16)
        if np.iinfo(each).min <= low and high <= np.iinfo(each).max
    )
    return next(fitting, np.int32)


def cut(integers: np.ndarray, length: int) -> Words:
    """Return a stream as words of this length."""
    flat = integers.reshape(-1)
    rows = np.zeros((-(-len(flat) // length), length), narrowest(flat))
    rows.reshape(-1)[: len(flat)] = flat
    base = int(_MOST_KEYS ** (1 / length) + 1e-9)
    lowest = _centre(flat, base)
    keys = np.zeros(len(rows), np.int32)
    far = np.zeros(len(rows), bool)
    for at in range(length):
        column = rows[:, at]
        far |= (column < lowest) | (column > lowest + base - 1)
        # What overflows here is far.
        keys += (column.astype(np.int32) - np.int32(lowest)) * np.int32(base**at)
    keys[far] = -1
    return Words(rows, keys, lowest, base)


def _centre(integers: np.ndarray, span: int) -> int:
    """Return where a span of this many integers starts, so that it holds the middle of these."""
    low, high = int(integers.min(initial=0)), int(integers.max(initial=0))
    if high - low < span:
        return low
    middle = int(np.median(integers))
    return min(max(middle - span // 2, low), high - span + 1)


def design(integers: np.ndarray) -> tuple[Words, Book, np.ndarray]:
    """Return the words of a stream, the code that makes it smallest, and the keys of its words."""
    bits = entropy(frequencies(integers))
    found = []
    for length in LENGTHS:
        # Longer words would hardly ever occur twice.
        if length > 1 and length * bits > math.log2(_MOST_WORDS):
            break
        words = cut(integers, length)
        order, classes = _by_frequency(words)
        # One margin tells which length is best.
        found.append((classes.cheapest(_MARGIN)[0], words, order, classes))
    _, words, order, classes = min(found, key=lambda each: each[0])
    _, widths, tree = min(map(classes.cheapest, _MARGINS), key=lambda each: each[0])
    starts = _starts_of(widths)
    table = np.zeros((starts[-1], words.rows.shape[1]), words.rows.dtype)
    held = order[: starts[-1]]
    table[: len(held)] = words.of_keys(held)
    return words, Book(table, tuple(widths), tree), held


def _by_frequency(words: Words) -> tuple[np.ndarray, "_Classes"]:
    """Return the keys of a stream's words, the most frequent first, to be cut into classes."""
    span = words.base ** words.rows.shape[1]
    # The first one counts words without a key, which is -1.
    counts = _counts(words.keys, -1, span + 1)[1:]
    # Stable, so that the same stream always has the same code.
    seen = np.flatnonzero(counts > 0)
    order = seen[np.argsort(-counts[seen], kind="stable")[:_MOST_WORDS]]
    return order, _Classes(counts[order], len(words.keys), *_sizes(words))


def _sizes(words: Words) -> tuple[int, int]:
    """Return how many integers a word has, and the bits of each when it is written out."""
    return words.rows.shape[1], 8 * words.rows.dtype.itemsize


class _Classes:
    """Cuts words, the most frequent first, into classes."""

    def __init__(self, counts: np.ndarray, total: int, length: int, bits: int) -> None:
        self._sums: list[int] = [0, *np.cumsum(counts).tolist()]
        self._total = total
        self._word_bits = length * bits

    def cheapest(self, margin: float) -> tuple[float, list[int], Tree]:
        """Return the price of the stream, the widths of the classes, and their tree."""
        widths = self._widths(1 + margin)
        masses = self._masses(widths)
        tree, path = _huffman(masses)
        bits = sum(mass * width for mass, width in zip(masses, widths, strict=False))
        escaped = sum(masses[len(widths) :]) * self._word_bits
        fixed = sum(2**width * self._word_bits + _CLASS_BITS for width in widths)
        return bits + escaped + fixed + (1 + _INDEX_PRICE) * path, widths, tree

    def _widths(self, depth: float) -> list[int]:
        """Return the best classes if the tree is so many times as deep as the entropy says."""
        count = len(self._sums) - 1
        prices = {0: 0.0}
        last: dict[int, tuple[int, int]] = {}
        for start in _starts(count):
            if start not in prices:
                continue
            for width in _WIDTHS if start < _FINE else _WIDTHS[3:]:
                end = min(start + 2**width, count)
                price = prices[start] + self._price(start, end, width, depth)
                if price < prices.get(end, math.inf):
                    prices[end], last[end] = price, (start, width)
        totals = {end: price + self._escaped(end, depth) for end, price in prices.items()}
        end = min(totals, key=lambda each: (totals[each], each))
        widths = []
        while end:
            end, width = last[end]
            widths.append(width)
        return widths[::-1]

    def _masses(self, widths: Sequence[int]) -> list[int]:
        """Return how many words of the stream each class has, and how many are written out."""
        count = len(self._sums) - 1
        sums = [self._sums[min(start, count)] for start in _starts_of(widths)]
        held = [after - before for before, after in itertools.pairwise(sums)]
        rest = self._total - sums[-1]
        return [*held, rest] if rest else held

    def _price(self, start: int, end: int, width: int, depth: float) -> float:
        mass = self._sums[end] - self._sums[start]
        fixed = (1 << width) * self._word_bits + _CLASS_BITS
        return mass * width + depth * self._path(mass) + fixed

    def _escaped(self, end: int, depth: float) -> float:
        mass = self._total - self._sums[end]
        return mass * self._word_bits + depth * self._path(mass) + _CLASS_BITS if mass else 0.0

    def _path(self, mass: int) -> float:
        """Return about how many bits of the tree the words of a class take."""
        return mass * math.log2(self._total / mass)


def _starts(count: int) -> Iterator[int]:
    yield from range(min(count, _FINE))
    yield from range(_FINE, count, _COARSE)


def _starts_of(widths: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(2**width for width in widths)]


def _huffman(masses: Sequence[int]) -> tuple[Tree, int]:
    """Return the Huffman tree of classes that occur so often, and the bits of all paths in it."""
    # The number tells equals apart, so that trees are never compared.
    heap: list[tuple[int, int, Tree]] = [(mass, at, at) for at, mass in enumerate(masses)]
    heapq.heapify(heap)
    bits = 0
    for number in itertools.count(len(heap)):
        if len(heap) == 1:
            break
        (less, _, zero), (more, _, one) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (less + more, number, (zero, one)))
        bits += less + more
    return heap[0][2], bits
