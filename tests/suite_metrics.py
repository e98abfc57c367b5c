"""What every metric must do; the test of each one subclasses this."""

import numpy as np
import pytest

from seqto.errors import ModelError
from seqto.protocols import JudgesAlone, Metric
from seqto.types import Outputs


def named(*arrays: np.ndarray) -> Outputs:
    """Return arrays as the outputs of a model: its only one is called scores."""
    names = ["scores", *(f"more_{number}" for number in range(1, len(arrays)))]
    return dict(zip(names, arrays, strict=True))


def loss(metric: Metric, reference: np.ndarray, outputs: np.ndarray) -> float:
    """Return the mean loss of the samples."""
    return float(np.mean(metric.losses(named(reference), named(outputs))))


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
        losses = metric.losses(named(reference), named(reference.copy()))
        np.testing.assert_array_equal(losses, np.zeros(50))

    def test_losses_are_fractions_one_per_sample(
        self, metric: Metric, reference: np.ndarray
    ) -> None:
        for outputs in (-reference, np.random.RandomState(1).randn(50, 10)):
            losses = np.asarray(metric.losses(named(reference), named(outputs)))
            assert losses.shape == (50,)
            assert ((losses >= 0) & (losses <= 1)).all() and losses.any()

    def test_samples_are_judged_one_by_one(self, metric: Metric, reference: np.ndarray) -> None:
        outputs = reference.copy()
        outputs[[3, 7]] = -outputs[[3, 7]]
        losses = np.asarray(metric.losses(named(reference), named(outputs)))
        assert list(np.flatnonzero(losses)) == [3, 7]

    def test_a_loss_depends_on_other_samples_only_if_that_is_said(
        self, metric: Metric, reference: np.ndarray
    ) -> None:
        if not (isinstance(metric, JudgesAlone) and metric.judges_alone):
            return
        outputs = np.random.RandomState(1).randn(50, 10)
        losses = np.asarray(metric.losses(named(reference), named(outputs)))
        for at in (0, 7, 49):
            one = slice(at, at + 1)
            alone = metric.losses(named(reference[one]), named(outputs[one]))
            assert np.asarray(alone) == losses[at]

    def test_more_noise_loses_more(self, metric: Metric, reference: np.ndarray) -> None:
        noise = np.random.RandomState(2).randn(50, 10)
        small, large = (loss(metric, reference, reference + scale * noise) for scale in (0.1, 3))
        assert 0 < small < large

    def test_outputs_stay_as_they_are(self, metric: Metric, reference: np.ndarray) -> None:
        outputs = reference[::-1]
        before = reference.copy(), outputs.copy()
        loss(metric, reference, outputs)
        np.testing.assert_array_equal(reference, before[0])
        np.testing.assert_array_equal(outputs, before[1])


class ClassMetricSuite(MetricSuite):
    """What metrics of class scores must do besides."""

    def test_axes_that_pooling_left_behind_count_for_nothing(
        self, metric: Metric, reference: np.ndarray
    ) -> None:
        # Some networks end in (samples, classes, 1, 1), where the last axis never differs.
        wanted = loss(metric, reference, reference[::-1])
        assert wanted > 0
        pooled = reference[:, :, None, None]
        assert loss(metric, pooled, pooled[::-1]) == wanted

    @pytest.mark.parametrize("broken", [np.nan, np.inf])
    def test_outputs_that_are_no_numbers_are_lost(
        self, metric: Metric, reference: np.ndarray, broken: float
    ) -> None:
        outputs = reference.copy()
        # Where the top class stays the same even so.
        outputs[0, outputs[0].argmax()] = broken
        losses = metric.losses(named(reference), named(outputs))
        assert list(losses) == [1.0, *[0.0] * 49]

    def test_several_outputs_are_refused(self, metric: Metric, reference: np.ndarray) -> None:
        both = named(reference, reference)
        with pytest.raises(ModelError, match=r"2 outputs.*'model.outputs=\[scores\]'"):
            metric.losses(both, both)

    @pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 1, 1)])
    def test_one_value_a_sample_is_refused(self, metric: Metric, shape: tuple[int, ...]) -> None:
        # Else every candidate would seem to be perfect.
        values = np.random.RandomState(0).randn(*shape)
        with pytest.raises(ModelError, match="'scores' has the shape .* no top class"):
            metric.losses(named(values), named(-values))

    @pytest.mark.parametrize("shape", [(50, 1, 8, 8), (50, 3, 8, 8), (50, 84, 20)])
    def test_what_is_no_row_of_classes_is_refused(
        self, metric: Metric, shape: tuple[int, ...]
    ) -> None:
        # Else a mask would be judged by the argmax over its width.
        values = np.random.RandomState(0).randn(*shape)
        with pytest.raises(ModelError, match=r"'scores' has the shape \[.*task=segmentation"):
            metric.losses(named(values), named(values))
