"""Weights as integers on a grid."""

import numpy as np
import pytest

from seqto.graph.grids import STEPS, on_grid, row_steps


def weight(*shape: int) -> np.ndarray:
    """Return rows of very different sizes."""
    rng = np.random.default_rng(5)
    sizes = 10.0 ** rng.uniform(-4, 1, (shape[0], *[1] * (len(shape) - 1)))
    return (rng.standard_normal(shape) * sizes).astype(np.float32)


def test_a_step_is_so_much_of_the_rms_to_an_eighth_of_an_octave() -> None:
    values = weight(40, 30, 3, 3)
    rms = np.sqrt(np.square(values).mean(axis=(1, 2, 3), keepdims=True))
    ratio = on_grid(values, (1, 2, 3), 0.5).scales / (0.5 * rms)
    assert ratio.shape == (40, 1, 1, 1)
    assert (np.abs(np.log2(ratio)) <= 1 / 16 + 1e-6).all()


def test_no_value_is_further_away_than_half_a_step() -> None:
    values = weight(40, 300)
    grid = on_grid(values, (1,), 0.3)
    assert (np.abs(grid.values - values) <= 0.5001 * grid.scales).all()
    assert grid.values.dtype == np.float32


def test_outliers_are_not_clipped() -> None:
    values = np.full((2, 1000), 1e-3, np.float32)
    values[0, 0] = 1e3
    grid = on_grid(values, (1,), 0.5)
    assert grid.values[0, 0] == pytest.approx(1e3, abs=float(grid.scales[0, 0]))
    np.testing.assert_allclose(grid.values[1], values[1], rtol=0.3)


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0), ()])
def test_weights_without_anything_stay_so(shape: tuple[int, ...]) -> None:
    axes = tuple(range(1, len(shape)))
    grid = on_grid(np.zeros(shape, np.float32), axes, 0.5)
    np.testing.assert_array_equal(grid.values, np.zeros(shape))


def test_a_row_of_zeros_has_a_step_beside_others() -> None:
    values = weight(4, 50)
    values[2] = 0
    grid = on_grid(values, (1,), 0.5)
    assert np.isfinite(grid.values).all()
    assert not grid.values[2].any()


def test_steps_are_halved_every_eighth_byte() -> None:
    np.testing.assert_array_equal(STEPS[8:], STEPS[:-8] / 2)
    steps, largest = row_steps(np.array([[4.0], [1.0]]), (1,), 1)
    assert (steps.tolist(), float(largest)) == ([[0], [16]], 4.0)
