"""How many predictions noise changes, foreseen from a few samples and counted on many."""

import numpy as np
import pytest

from seqto.metrics.margins import expected_changes

DRAW = np.random.default_rng(0)
SCORES = DRAW.standard_normal((4000, 50)) * 3


def noisy(scores: np.ndarray, spread: float) -> np.ndarray:
    return scores + np.random.default_rng(1).standard_normal(scores.shape) * spread


def softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.5])
def test_what_is_foreseen_from_16_samples_is_what_is_counted(spread: float) -> None:
    found = expected_changes({"y": SCORES}, {"y": SCORES[:16]}, {"y": noisy(SCORES[:16], spread)})
    counted = np.mean(SCORES.argmax(axis=1) != noisy(SCORES, spread).argmax(axis=1))
    assert counted > 0.005
    assert found == pytest.approx(counted, rel=0.3)


def test_probabilities_tell_the_same_as_logits() -> None:
    few = SCORES[:16]
    logits = expected_changes({"y": SCORES}, {"y": few}, {"y": noisy(few, 0.1)})
    found = expected_changes(
        {"y": softmax(SCORES)}, {"y": softmax(few)}, {"y": softmax(noisy(few, 0.1))}
    )
    assert found == pytest.approx(logits, rel=0.01)


def test_equal_outputs_change_nothing() -> None:
    assert expected_changes({"y": SCORES}, {"y": SCORES[:8]}, {"y": SCORES[:8]}) == 0


def test_a_shift_of_all_classes_changes_nothing() -> None:
    few = {"y": SCORES[:8]}
    assert expected_changes({"y": SCORES}, few, {"y": SCORES[:8] + 5}) < 1e-6


def test_outputs_of_no_use_have_changed() -> None:
    few, broken = SCORES[:8], SCORES[:8].copy()
    broken[:2] = np.nan
    assert expected_changes({"y": SCORES}, {"y": few}, {"y": broken}) == 0.25
    assert expected_changes({"y": SCORES}, {"y": few}, {"y": np.full_like(few, np.nan)}) == 1


def test_two_classes_are_enough() -> None:
    scores = SCORES[:, :2]
    found = expected_changes({"y": scores}, {"y": scores[:16]}, {"y": noisy(scores[:16], 0.3)})
    assert 0 < found < 0.2


def test_a_tie_does_not_count_for_all_small_noises() -> None:
    known = SCORES[:100].copy()
    # Two classes of one sample are equal: any noise changes it as often as not.
    known[0, np.argsort(known[0])[-2]] = known[0].max()
    few = SCORES[100:116]
    found = expected_changes({"y": known}, {"y": few}, {"y": noisy(few, 0.002)})
    counted = np.mean(SCORES.argmax(axis=1) != noisy(SCORES, 0.002).argmax(axis=1))
    assert found < 0.003 and counted < 0.003


@pytest.mark.parametrize("live", [1, 2, 3, 4, 5])
def test_classes_that_are_ruled_out_are_no_rivals(live: int) -> None:
    known = np.where(np.arange(50) < live, SCORES, -np.inf)
    found = expected_changes({"y": known}, {"y": known[:16]}, {"y": noisy(known[:16], 0.3)})
    counted = np.mean(known.argmax(axis=1) != noisy(known, 0.3).argmax(axis=1))
    assert found == pytest.approx(counted, rel=0.5) and (live > 1) == (found > 0)


def test_where_the_float_model_is_of_no_use_nothing_is_lost() -> None:
    few = SCORES[:16].copy()
    few[:8] = np.nan
    assert expected_changes({"y": SCORES}, {"y": few}, {"y": few}) == 0
    assert expected_changes({"y": SCORES}, {"y": few * np.nan}, {"y": few}) == 0
