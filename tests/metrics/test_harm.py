"""How far outputs are from the float model's."""

import numpy as np
import pytest

from seqto.errors import ModelError
from seqto.metrics.harm import FLOOR, UNUSABLE, harm_to

DRAW = np.random.RandomState(0)


def rows(*values: list[float]) -> list[np.ndarray]:
    """Return outputs of single samples."""
    return [np.array([each], np.float32) for each in values]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the distribution of each row."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_divergence_is_that_of_the_textbook() -> None:
    reference, outputs = rows([1, 2, 3], [0, 0, 5]), rows([1, 2, 2.5], [0, 1, 5])
    harm = harm_to(reference)
    assert harm.name == "kl"
    p, q = (softmax(np.concatenate(each).astype(np.float64)) for each in (reference, outputs))
    wanted = (p * np.log(p / q)).sum(axis=1)
    assert harm.per_sample(outputs) == pytest.approx(wanted, rel=1e-4)


def test_logits_may_be_shifted() -> None:
    harm = harm_to(rows([1, 2, 3], [3, 4, 1]))
    assert harm.per_sample(rows([101, 102, 103], [-97, -96, -99])) == pytest.approx(0, abs=1e-12)


def test_a_distribution_is_the_same_as_its_logits() -> None:
    reference, outputs = DRAW.randn(2, 4, 1, 6).astype(np.float32)
    by_logits = harm_to(list(reference)).per_sample(list(outputs))
    by_rows = harm_to(list(softmax(reference))).per_sample(list(softmax(outputs)))
    assert by_rows == pytest.approx(by_logits, rel=1e-4)


def test_tiny_differences_are_neither_lost_nor_negative() -> None:
    logits = DRAW.randn(16, 1, 1000)
    noise = DRAW.randn(16, 1, 1000) * 1e-5
    found = harm_to(list(logits)).per_sample(list(logits + noise))
    assert (found > 1e-12).all()
    assert (harm_to(list(logits)).per_sample(list(logits)) == 0).all()


def test_impossible_classes_are_finite() -> None:
    # 8 bits round small probabilities to zero.
    found = harm_to(rows([0.9, 0.1, 0.0])).per_sample(rows([1.0, 0.0, 0.0]))
    assert 0.1 < found[0] < -np.log(FLOOR)
    masked = harm_to(rows([1, 2, -np.inf]))
    assert masked.per_sample(rows([1, 2, -np.inf])) == [0]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_outputs_that_are_no_numbers_are_the_worst(broken: float) -> None:
    reference = rows([1, 2], [3, 4])
    found = harm_to(reference).per_sample(rows([1, broken], [3, 4]))
    assert found == pytest.approx([-np.log(FLOOR), 0])
    images = [np.ones((1, 2, 2)) * value for value in (1.0, 2.0)]
    wrong = [np.ones((1, 2, 2)) * value for value in (broken, 2.0)]
    assert harm_to(images).per_sample(wrong) == pytest.approx([UNUSABLE, 0])


def test_samples_that_the_float_model_cannot_tell_do_not_count() -> None:
    assert harm_to(rows([1, np.nan], [3, 4])).per_sample(rows([5, 6], [3, 4])) == pytest.approx(0)
    images = [np.full((1, 2, 2), value) for value in (np.nan, 2.0)]
    assert harm_to(images).per_sample([np.ones((1, 2, 2))] * 2) == pytest.approx([0, 1])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 2, 3), (1, 3, 4, 4)])
def test_what_are_no_class_scores_is_a_share_of_the_variance(shape: tuple[int, ...]) -> None:
    reference = [np.asarray(value) for value in DRAW.randn(8, *shape)]
    outputs = [each + 0.1 for each in reference]
    harm = harm_to(reference)
    assert harm.name == "mse"
    assert harm.per_sample(outputs) == pytest.approx(0.01 / np.var(reference))


def test_constant_outputs_have_no_variance_to_share() -> None:
    assert harm_to([np.ones((1, 1))] * 2).per_sample([np.full((1, 1), 3.0)] * 2) == pytest.approx(4)


def test_classes_may_stand_in_a_tiny_image() -> None:
    harm = harm_to(list(DRAW.randn(3, 1, 10, 1, 1)))
    assert harm.name == "kl"


def test_outputs_of_several_shapes_are_one_clear_error() -> None:
    with pytest.raises(ModelError, match=r"shapes \[3, 4\] and \[2, 4\]"):
        harm_to([np.zeros((3, 4)), np.zeros((2, 4))])
