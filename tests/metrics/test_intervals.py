"""How sure a measured fraction is."""

import pytest

from seqto.metrics.intervals import wilson


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (0, 300, 0.0, 0.01264),
        (6, 300, 0.0092, 0.0429),
        (300, 300, 1 - 0.01264, 1.0),
        # Newcombe, Statistics in Medicine 17 (1998), table I: method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_known_intervals(hits: int, count: int, low: float, high: float) -> None:
    assert wilson(hits / count, count) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 100, 10**6])
def test_bounds_are_fractions_around_the_measured_one(count: int) -> None:
    for hits in {0, 1, count // 2, count}:
        low, high = wilson(hits / count, count)
        assert 0 <= low <= hits / count + 1e-12
        assert hits / count - 1e-12 <= high <= 1
        assert low < high


def test_hits_and_misses_mirror_each_other() -> None:
    low, high = wilson(0.03, 100)
    assert wilson(0.97, 100) == pytest.approx((1 - high, 1 - low))


def test_more_samples_are_surer() -> None:
    widths = [high - low for low, high in (wilson(0.1, count) for count in (10, 100, 1000))]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
