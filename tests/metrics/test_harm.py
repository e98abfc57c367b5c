"""How far outputs are from the float model's."""

from typing import Any

import numpy as np
import pytest

from seqto.errors import ModelError
from seqto.metrics.harm import FLOOR, Divergence
from seqto.types import Outputs

DRAW = np.random.RandomState(0)


def of(values: Any) -> Outputs:
    """Return the values of samples as those of the model's only output."""
    return {"scores": np.asarray(values)}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the distribution of each row."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_divergence_is_that_of_the_textbook() -> None:
    reference, outputs = [[1, 2, 3], [0, 0, 5]], [[1, 2, 2.5], [0, 1, 5]]
    p, q = (softmax(np.array(each, np.float64)) for each in (reference, outputs))
    wanted = (p * np.log(p / q)).sum(axis=1)
    assert Divergence(of(reference)).per_sample(of(outputs)) == pytest.approx(wanted, rel=1e-4)


def test_logits_may_be_shifted() -> None:
    harm = Divergence(of([[1, 2, 3], [3, 4, 1]]))
    found = harm.per_sample(of([[101, 102, 103], [-97, -96, -99]]))
    assert found == pytest.approx([0, 0], abs=1e-12)


def test_a_distribution_is_the_same_as_its_logits() -> None:
    reference, outputs = DRAW.randn(2, 4, 6).astype(np.float32)
    by_logits = Divergence(of(reference)).per_sample(of(outputs))
    by_rows = Divergence(of(softmax(reference))).per_sample(of(softmax(outputs)))
    assert by_rows == pytest.approx(by_logits, rel=1e-4)


def test_tiny_differences_are_neither_lost_nor_negative() -> None:
    logits, noise = DRAW.randn(16, 1000), DRAW.randn(16, 1000) * 1e-5
    harm = Divergence(of(logits))
    assert (harm.per_sample(of(logits + noise)) > 1e-12).all()
    assert (harm.per_sample(of(logits)) == 0).all()


def test_fewer_samples_are_the_first_ones() -> None:
    logits, noisy = DRAW.randn(2, 6, 5)
    whole = Divergence(of(logits)).per_sample(of(noisy))
    np.testing.assert_array_equal(Divergence(of(logits)).per_sample(of(noisy[:2])), whole[:2])


def test_impossible_classes_are_finite() -> None:
    # 8 bits round small probabilities to zero.
    found = Divergence(of([[0.9, 0.1, 0.0]])).per_sample(of([[1.0, 0.0, 0.0]]))
    assert 0.1 < found[0] < -np.log(FLOOR)
    masked = of([[1, 2, -np.inf]])
    assert Divergence(masked).per_sample(masked) == [0]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_outputs_that_are_no_numbers_are_the_worst(broken: float) -> None:
    reference, outputs = of([[1, 2], [3, 4]]), of([[1, broken], [3, 4]])
    found = Divergence(reference).per_sample(outputs)
    assert found == pytest.approx([-np.log(FLOOR), 0])


def test_samples_that_the_float_model_cannot_tell_do_not_count() -> None:
    reference, outputs = of([[1, np.nan], [3, 4]]), of([[5, 6], [3, 4]])
    assert Divergence(reference).per_sample(outputs) == pytest.approx([0, 0])


def test_classes_may_stand_in_a_tiny_image() -> None:
    logits, noisy = DRAW.randn(2, 3, 10)
    found = Divergence(of(logits[..., None, None])).per_sample(of(noisy[..., None, None]))
    np.testing.assert_array_equal(found, Divergence(of(logits)).per_sample(of(noisy)))


def test_outputs_of_several_shapes_are_one_clear_error() -> None:
    with pytest.raises(ModelError, match=r"'scores' has the shape \[3\] or \[2\] per sample"):
        Divergence({"scores": (np.zeros(3), np.zeros(2))})
