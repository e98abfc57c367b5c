"""Rounding with error feedback."""

import numpy as np
import pytest

from seqto.graph.feedback import Factors, factors_of, fed_back, what_counts


def correlated(rows: int, columns: int, seed: int) -> np.ndarray:
    """Return rows whose columns go together, as activations' do."""
    mixing = np.random.RandomState(0).randn(columns // 4, columns)
    draw = np.random.RandomState(seed)
    noise = draw.randn(rows, columns)
    return draw.randn(rows, columns // 4) @ mixing + 0.2 * noise + 0.5


def known(moments: np.ndarray) -> Factors:
    """Return the factors of these moments, which allow it."""
    found = factors_of(moments)
    assert found is not None
    return found


def test_outputs_move_much_less_than_with_the_nearest_integers_also_on_other_rows() -> None:
    weight = np.random.RandomState(1).randn(1, 24, 160)
    seen, unseen = correlated(2000, 160, 2), correlated(500, 160, 3)
    scales = np.full_like(weight, 0.5)
    chosen = fed_back(weight, scales, [known((seen.T @ seen / len(seen))[None])], -8, 7)
    nearest = np.clip(np.rint(weight / scales), -8, 7)
    errors = [
        np.square(unseen @ (weight - integers * scales)[0].T).mean()
        for integers in (chosen, nearest)
    ]
    assert errors[0] < errors[1] / 4


def test_independent_inputs_are_rounded_to_the_nearest() -> None:
    weight = np.random.RandomState(1).randn(2, 5, 9)
    moments = np.stack([np.diag(np.arange(1.0, 10)), np.eye(9)])
    chosen = fed_back(weight, np.full_like(weight, 0.3), [known(moments)], -8, 7)
    np.testing.assert_array_equal(chosen, np.clip(np.rint(weight / np.float32(0.3)), -8, 7))


def test_groups_do_not_depend_on_each_other() -> None:
    weight = np.random.RandomState(1).randn(3, 4, 12)
    scales = np.full_like(weight, 0.4)
    rows = [correlated(100, 12, seed) for seed in range(3)]
    moments = np.stack([each.T @ each / 100 for each in rows])
    together = fed_back(weight, scales, [known(moments)], -8, 7)
    for group in range(3):
        some = slice(group, group + 1)
        alone = fed_back(weight[some], scales[some], [known(moments[some])], -8, 7)
        np.testing.assert_array_equal(together[some], alone)


def test_what_it_is_given_stays_as_it_is() -> None:
    # One output: then rows and columns have the same order in memory.
    weight = np.random.RandomState(1).randn(3, 1, 9).astype(np.float32)
    before = weight.copy()
    fed_back(weight, np.full_like(weight, 0.4), [known(np.ones((3, 9, 9)))], -8, 7)
    np.testing.assert_array_equal(weight, before)


def test_inputs_that_are_always_zero_or_not_finite() -> None:
    weight = np.random.RandomState(1).randn(1, 4, 6)
    scales = np.full_like(weight, 0.4)
    nearest = np.clip(np.rint(weight / np.float32(0.4)), -8, 7)
    found = fed_back(weight, scales, [known(np.zeros((1, 6, 6)))], -8, 7)
    np.testing.assert_array_equal(found, nearest)
    assert factors_of(np.full((1, 6, 6), np.nan)) is None
    assert factors_of(np.eye(6)[None] - 1) is None


def test_rows_without_a_scale_count_for_nothing() -> None:
    weight = np.random.RandomState(1).randn(1, 3, 6)
    scales = np.full_like(weight, 0.4)
    scales[:, 1] = 0
    found = fed_back(weight, scales, [known(np.ones((1, 6, 6)))])
    assert (found[:, 1] == 0).all() and (found[:, [0, 2]] != 0).any(axis=-1).all()


def test_factors_are_packed_without_loss() -> None:
    seen = correlated(100, 12, 1)
    factors = known(np.stack([seen.T @ seen, np.eye(12)]))
    again = Factors.unpacked(factors.packed, factors.units)
    assert factors.packed.shape == (2, 12 * 11 // 2)
    np.testing.assert_array_equal(again.integers, factors.integers)


def test_the_order_of_additions_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on machines that multiply matrices otherwise.
    weight = np.random.RandomState(1).randn(1, 24, 160).astype(np.float32)
    seen = correlated(2000, 160, 2)
    factors = [known((seen.T @ seen / len(seen))[None])]
    found = fed_back(weight, np.full_like(weight, 0.05), factors)
    monkeypatch.setattr("seqto.graph.feedback._AT_ONCE", 7)
    np.testing.assert_array_equal(fed_back(weight, np.full_like(weight, 0.05), factors), found)


def column_by_column(
    rows: np.ndarray, scales: np.ndarray, factors: Factors, low: float, high: float
) -> np.ndarray:
    """Return the integers of `[groups, outputs, columns]`, in the plainest way."""
    _, exponents = np.frexp(np.abs(rows).max(axis=-1, keepdims=True))
    units = np.ldexp(1.0, exponents - 30)
    left, steps = np.rint(rows / units), scales / units
    found = np.empty_like(left)
    for at in range(rows.shape[-1]):
        found[..., at] = np.clip(np.rint(left[..., at] / steps[..., at]), low, high)
        lost = left[..., at] - found[..., at] * steps[..., at]
        errors = np.rint(lost * factors.units[:, at, None])
        shares = factors.integers[:, at, None, at + 1 :].astype(np.float64)
        left[..., at + 1 :] -= errors[..., None] * shares
    return found


@pytest.mark.parametrize("shape", [(1, 24, 90), (5, 1, 25), (2, 6, 40), (1, 1, 1), (3, 2, 17)])
@pytest.mark.parametrize("levels", [(-8, 7), (-np.inf, np.inf)])
def test_the_integers_are_those_of_one_column_after_the_other(
    shape: tuple[int, ...], levels: tuple[float, float]
) -> None:
    groups, _, columns = shape
    draw = np.random.RandomState(1)
    weight = draw.randn(*shape).astype(np.float32)
    scales = (0.05 + 0.3 * draw.rand(*shape)).astype(np.float32)
    seen = draw.randn(groups, 2 * columns, columns) @ draw.randn(groups, columns, columns)
    factors = known(seen.transpose(0, 2, 1) @ seen)
    wanted = column_by_column(weight, scales, factors, *levels)
    assert columns == 1 or not np.array_equal(wanted, np.clip(np.rint(weight / scales), *levels))
    np.testing.assert_array_equal(fed_back(weight, scales, [factors], *levels), wanted)


def test_columns_may_come_in_parts() -> None:
    weight = np.random.RandomState(1).randn(1, 4, 24)
    seen = correlated(500, 24, 2)
    moments = (seen.T @ seen / 500)[None]
    parts = [known(moments[:, some, some]) for some in (slice(10), slice(10, 24))]
    scales = np.full_like(weight, 0.3)
    found = fed_back(weight, scales, parts)
    for some, factors in zip((slice(10), slice(10, 24)), parts, strict=True):
        alone = fed_back(weight[..., some], scales[..., some], [factors])
        np.testing.assert_array_equal(found[..., some], alone)


@pytest.mark.parametrize(("rows", "share"), [(8, 0.3), (200, 1.0)])
@pytest.mark.parametrize("corrected", [False, True])
def test_correlations_of_few_rows_are_trusted_less(
    rows: int, share: float, corrected: bool
) -> None:
    seen = correlated(rows, 12, 5)
    mean, moments = seen.mean(axis=0), seen.T @ seen / rows
    spread = moments - np.outer(mean, mean)
    counts = what_counts(mean[None], moments[None], rows, corrected=corrected)
    found = counts[0] - np.outer(mean, mean)
    np.testing.assert_allclose(np.diag(found), np.diag(spread))
    apart = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(found[apart], share * spread[apart])


def test_the_mean_is_left_to_the_bias_if_many_rows_were_seen() -> None:
    seen = correlated(1000, 12, 5)
    mean, moments = seen.mean(axis=0), seen.T @ seen / 1000
    left, kept = (
        what_counts(mean[None], moments[None], 1000, corrected=each)[0] for each in (True, False)
    )
    np.testing.assert_allclose(left, np.cov(seen.T, bias=True))
    np.testing.assert_allclose(kept, moments)
