"""Streams of integers in about as many bits as their entropy."""

import numpy as np
import pytest
from integer_streams import STREAMS, normal, skewed

from seqto.graph.codebooks import frequencies, narrowest
from seqto.graph.coding import Stream, decode, encode
from seqto.graph.grids import entropy


def arrays(stream: Stream) -> list[np.ndarray]:
    """Return all arrays that a stream has."""
    low = [each.codes for each in stream.low]
    return [*stream.planes, *stream.codes, stream.escapes, stream.words, *low]


@pytest.mark.parametrize("name", STREAMS)
def test_decoding_is_exact(name: str) -> None:
    integers = STREAMS[name]
    np.testing.assert_array_equal(decode(encode(integers)), integers)


@pytest.mark.parametrize("name", STREAMS)
def test_same_integers_give_the_same_stream(name: str) -> None:
    one, other = encode(STREAMS[name]), encode(STREAMS[name].copy())
    assert one.book.tree == other.book.tree
    assert [each.tobytes() for each in arrays(one)] == [each.tobytes() for each in arrays(other)]


@pytest.mark.parametrize("step", [0.03, 0.06, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4])
def test_size_is_near_the_entropy(step: float) -> None:
    integers = normal(1_000_000, step)
    bits = 8 * encode(integers).size / integers.size
    least = entropy(frequencies(integers))
    assert least < bits < 1.025 * least


@pytest.mark.parametrize(
    ("step", "widths"),
    [
        (1.0, []),
        (0.3, []),
        (0.25, [1]),
        (0.125, [2]),
        (0.06, [2, 1]),
        (0.03, [4]),
        (0.001, [4, 2, 1]),
    ],
)
def test_the_lowest_bits_of_fine_integers_are_beside_the_tree(
    step: float, widths: list[int]
) -> None:
    stream = encode(normal(100_000, step))
    assert [each.width for each in stream.low] == widths
    assert [8 * len(each.codes) for each in stream.low] == [
        width * stream.filled for width in widths
    ]


def test_long_tails_are_near_the_entropy_too() -> None:
    integers = np.rint(np.random.default_rng(3).laplace(size=1_000_000) / 0.5).astype(np.int32)
    assert 8 * encode(integers).size / integers.size < 1.025 * entropy(frequencies(integers))


def test_skewed_integers_take_less_than_a_bit() -> None:
    integers = skewed(100_000)
    assert 8 * encode(integers).size / integers.size < 0.25


def test_outliers_cost_only_themselves() -> None:
    plain = normal(100_000, 0.5)
    outlying = plain.copy()
    outlying[::10_000] = 100_000
    assert encode(outlying).size < encode(plain).size + 2000


def test_shape_does_not_matter() -> None:
    integers = normal(6000, 0.5)
    np.testing.assert_array_equal(decode(encode(integers.reshape(20, 300))), integers)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([-128, 127], np.int8), ([-129], np.int16), ([32768], np.int32), ([], np.int8)],
)
def test_words_are_of_the_narrowest_type(values: list[int], wanted: type) -> None:
    assert narrowest(np.array(values, np.int32)) is wanted


def test_entropy_is_that_of_the_frequencies() -> None:
    assert entropy(np.array([1, 1, 1, 1])) == pytest.approx(2)
    assert entropy(np.array([3, 0, 1])) == pytest.approx(0.8113, abs=1e-4)
    assert entropy(np.array([0])) == 0
