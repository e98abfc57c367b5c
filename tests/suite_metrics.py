"""What every metric must do; the test of each one subclasses this."""

import numpy as np
import pytest

from seqto.protocols import Metric


class MetricSuite:
    """Subclasses give the fixture `metric`; outputs have ten classes."""

    @pytest.fixture
    def metric(self) -> Metric:
        """Return the metric to test."""
        raise NotImplementedError

    @pytest.fixture
    def reference(self) -> np.ndarray:
        """Return the float model's outputs."""
        return np.random.RandomState(0).randn(50, 10).astype(np.float32)

    def test_has_a_name(self, metric: Metric) -> None:
        assert metric.name

    def test_same_outputs_lose_nothing(self, metric: Metric, reference: np.ndarray) -> None:
        assert metric.loss(reference, reference.copy()) == 0.0

    def test_loss_is_a_plain_number_from_0_to_1(
        self, metric: Metric, reference: np.ndarray
    ) -> None:
        for outputs in (-reference, np.random.RandomState(1).randn(50, 10)):
            loss = metric.loss(reference, outputs)
            assert type(loss) is float
            assert 0 < loss <= 1

    def test_more_noise_loses_more(self, metric: Metric, reference: np.ndarray) -> None:
        noise = np.random.RandomState(2).randn(50, 10)
        small, large = (metric.loss(reference, reference + scale * noise) for scale in (0.1, 3))
        assert 0 < small < large

    def test_outputs_stay_as_they_are(self, metric: Metric, reference: np.ndarray) -> None:
        outputs = reference[::-1]
        before = reference.copy(), outputs.copy()
        metric.loss(reference, outputs)
        np.testing.assert_array_equal(reference, before[0])
        np.testing.assert_array_equal(outputs, before[1])

    def test_axes_that_pooling_left_behind_count_for_nothing(
        self, metric: Metric, reference: np.ndarray
    ) -> None:
        # Some networks end in (samples, classes, 1, 1), where the last axis never differs.
        wanted = metric.loss(reference, reference[::-1])
        assert wanted > 0
        pooled = reference[:, :, None, None]
        assert metric.loss(pooled, pooled[::-1]) == wanted
