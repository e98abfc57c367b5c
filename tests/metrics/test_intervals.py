"""How sure a measured figure is, and whether two of them can be told apart."""

import numpy as np
import pytest
from scipy import stats

from seqto.metrics.intervals import bootstrap, can_be_told_apart, mean_of, wilson


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


def test_losses_of_0_and_1_have_wilsons_interval() -> None:
    losses = np.repeat([0.0, 1.0], [294, 6])
    found = mean_of(losses)
    assert (found.value, found.low, found.high) == (0.02, *wilson(0.02, 300))


def test_other_losses_have_the_interval_of_their_mean() -> None:
    losses = np.random.RandomState(1).beta(2, 5, 200)
    found = mean_of(losses)
    half = 1.96 * losses.std() / np.sqrt(200)
    assert found.value == losses.mean()
    assert (found.low, found.high) == pytest.approx(
        (losses.mean() - half, losses.mean() + half), rel=0.05
    )


def test_figures_of_a_corpus_are_resampled() -> None:
    draw = np.random.RandomState(2).randn(400)
    found = bootstrap(lambda indices: float(np.median(draw[indices])), 400)
    assert found.value == np.median(draw)
    # The standard error of the median of a normal sample.
    half = 1.96 * 1.2533 / np.sqrt(400)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.25)
    assert bootstrap(lambda indices: float(np.median(draw[indices])), 400) == found


@pytest.mark.parametrize(("worse", "better"), [(6, 0), (5, 0), (9, 1), (7, 1), (20, 12), (30, 12)])
def test_flips_are_told_apart_as_mcnemars_exact_test_does(worse: int, better: int) -> None:
    one, two = np.zeros(300), np.zeros(300)
    # Both lose the last hundred, which says nothing about their difference.
    one[200:] = two[200:] = 1
    one[:worse], two[worse : worse + better] = 1, 1
    wanted = stats.binomtest(better, worse + better).pvalue < 0.05
    assert can_be_told_apart(one, two) == can_be_told_apart(two, one) == wanted


def test_a_paired_test_sees_what_intervals_do_not() -> None:
    hard = np.random.RandomState(3).rand(300)
    one, two = 0.9 * hard, 0.9 * hard + 0.02
    assert mean_of(one).high > mean_of(two).low
    assert can_be_told_apart(one, two)


def test_what_is_only_noise_is_not_told_apart() -> None:
    draw = np.random.RandomState(4)
    apart = [can_be_told_apart(draw.rand(100), draw.rand(100)) for _ in range(200)]
    assert np.mean(apart) < 0.1
    same = draw.rand(100)
    assert not can_be_told_apart(same, same)
