"""Which arrays share a code."""

import numpy as np
import pytest

from seqto.graph.stream_groups import MOST_GROUPS, grouped


def normal(step: float, size: int = 100_000) -> np.ndarray:
    """Return normally distributed integers."""
    return np.rint(np.random.default_rng(3).standard_normal(size) / step).astype(np.int32)


def test_alike_arrays_share_a_code_and_others_do_not() -> None:
    arrays = [normal(0.5), normal(2), normal(0.55), normal(2.1)]
    assert grouped(arrays) == [[0, 2], [1, 3]]


def test_small_arrays_have_no_code_of_their_own() -> None:
    assert grouped([normal(0.5), normal(2, 50), normal(0.3, 70)]) == [[0, 1, 2]]


def test_there_are_at_most_a_few_codes() -> None:
    arrays = [normal(0.1 * 1.5**at) for at in range(2 * MOST_GROUPS)]
    groups = grouped(arrays)
    assert len(groups) == MOST_GROUPS
    assert sorted(at for group in groups for at in group) == list(range(len(arrays)))
    assert all(group == list(range(group[0], group[-1] + 1)) for group in groups)


@pytest.mark.parametrize("outlier", [1000, 10**6])
def test_an_array_of_wide_integers_does_not_widen_others(outlier: int) -> None:
    wide = normal(0.5)
    wide[5] = outlier
    assert grouped([normal(0.5), wide, normal(0.5)]) == [[0, 2], [1]]


def test_given_arrays_stay_as_they_are() -> None:
    arrays = [normal(0.5), normal(0.6)]
    before = [each.copy() for each in arrays]
    grouped(arrays)
    assert all((one == other).all() for one, other in zip(before, arrays, strict=True))
