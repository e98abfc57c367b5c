"""Agreement with the float model's predictions, by hand."""

import numpy as np
import pytest
from pydantic import ValidationError
from suite_metrics import ClassMetricSuite, loss

from seqto.errors import ConfigError
from seqto.metrics.agreement import Top1Agreement, TopKAgreement, top1
from seqto.protocols import Metric


class TestTop1(ClassMetricSuite):
    """The conformance suite."""

    @pytest.fixture
    def metric(self) -> Top1Agreement:
        """Return the default."""
        return Top1Agreement()


class TestTopK(ClassMetricSuite):
    """The conformance suite."""

    @pytest.fixture
    def metric(self) -> TopKAgreement:
        """Return the default."""
        return TopKAgreement()


REFERENCE = np.array([[9, 5, 1, 0], [0, 9, 5, 1], [1, 0, 9, 5], [5, 1, 0, 9]], np.float32)
BOTH = pytest.mark.parametrize("metric", [Top1Agreement(), TopKAgreement(k=1)])


@BOTH
def test_loss_is_the_share_of_samples_whose_top_class_differs(metric: Metric) -> None:
    outputs = REFERENCE.copy()
    outputs[2] = [3, 2, 0, 1]
    assert loss(metric, REFERENCE, outputs) == 0.25
    assert loss(metric, REFERENCE, REFERENCE[:, ::-1]) == 1.0


@BOTH
def test_scores_below_the_top_do_not_count(metric: Metric) -> None:
    outputs = np.where(REFERENCE == 9, 0.1, 0.0)
    assert loss(metric, REFERENCE, outputs) == 0.0


def test_top_k_counts_what_is_missed_whatever_the_order() -> None:
    metric = TopKAgreement(k=2)
    swapped = REFERENCE.copy()
    swapped[0] = [5, 9, 1, 0]
    assert loss(metric, REFERENCE, swapped) == 0.0
    half = REFERENCE.copy()
    half[0] = [9, 0, 5, 1]
    assert loss(metric, REFERENCE, half) == 1 / 8
    other = REFERENCE.copy()
    other[0] = [0, 1, 5, 9]
    assert loss(metric, REFERENCE, other) == 2 / 8


def test_equal_scores_are_the_same_classes_in_both_models() -> None:
    # Three scores for a thousand classes: the first of the highest are the top ones.
    scores = np.random.RandomState(0).randint(0, 3, (20, 1000)).astype(np.float32)
    clear = np.stack([row * 1000 - np.arange(1000) for row in scores])
    assert loss(TopKAgreement(k=5), scores, clear) == 0.0


@pytest.mark.parametrize("lost", [1, 3, 7, 29])
@BOTH
def test_a_loss_of_so_many_percent_is_exactly_that(metric: Metric, lost: int) -> None:
    # 1 - 0.99 is more than 0.01, and a limit of 0.01 would not be met.
    reference = np.tile([1.0, 0.0, 0.0], (100, 1))
    outputs = reference.copy()
    outputs[:lost] = [0, 1, 0]
    assert loss(metric, reference, outputs) == lost / 100


@pytest.mark.parametrize("k", [4, 5])
def test_a_top_k_of_all_classes_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=f"metric.k={k} compares every class.*below 4"):
        loss(TopKAgreement(k=k), REFERENCE, REFERENCE)
    assert loss(TopKAgreement(k=3), REFERENCE, REFERENCE) == 0.0


def test_a_top_k_of_all_classes_is_refused_behind_pooling_too() -> None:
    pooled = REFERENCE[:, :, None, None]
    with pytest.raises(ConfigError, match="metric.k=5 compares every class"):
        loss(TopKAgreement(), pooled, pooled)


def test_top_1_is_the_class_of_the_highest_score() -> None:
    np.testing.assert_array_equal(top1(REFERENCE), [0, 1, 2, 3])
    np.testing.assert_array_equal(top1(REFERENCE[..., None, None]), [0, 1, 2, 3])


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValidationError, match="k\n"):
        TopKAgreement(k=0)
    with pytest.raises(ValidationError, match="top\n"):
        Top1Agreement(top=1)
