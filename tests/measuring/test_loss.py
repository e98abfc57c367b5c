"""The loss as the metric gives it, and what is wrong with a metric."""

from typing import NoReturn

import numpy as np
import pytest

from seqto.errors import MetricError
from seqto.measuring.loss import check_metric, loss_of
from seqto.metrics.agreement import Top1Agreement, TopKAgreement
from seqto.metrics.function import FunctionMetric

OUTPUTS = np.random.RandomState(0).randn(20, 10)


def test_loss_is_the_metrics() -> None:
    assert loss_of(Top1Agreement(), OUTPUTS, OUTPUTS[::-1]) == Top1Agreement().loss(
        OUTPUTS, OUTPUTS[::-1]
    )
    check_metric(Top1Agreement(), OUTPUTS)


@pytest.mark.parametrize("loss", [-0.1, 1.5, float("nan"), float("inf")])
def test_what_is_no_fraction_is_refused(loss: float) -> None:
    with pytest.raises(MetricError, match=r"metric <lambda> returned .*from 0 \(the same\) to 1"):
        loss_of(FunctionMetric(lambda a, b: loss), OUTPUTS, OUTPUTS)


def test_what_a_metric_raises_is_told_with_its_name() -> None:
    def mine(reference: np.ndarray, outputs: np.ndarray) -> NoReturn:
        raise ValueError("my boom")

    with pytest.raises(MetricError, match=r"metric mine raised ValueError: my boom.*\[20, 10\]"):
        loss_of(FunctionMetric(mine), OUTPUTS, OUTPUTS)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(MetricError, match="raised TypeError"):
        loss_of(FunctionMetric(lambda a, b: None), OUTPUTS, OUTPUTS)  # type: ignore[arg-type]


def test_a_metric_of_seqtos_own_says_what_is_wrong() -> None:
    with pytest.raises(MetricError, match=r"metric.k=10 .* Choose metric.k below 10"):
        check_metric(TopKAgreement(k=10), OUTPUTS)


def test_outputs_that_are_the_same_lose_nothing() -> None:
    with pytest.raises(MetricError, match="metric half gives a loss of 0.5 .* has to be 0"):
        check_metric(FunctionMetric(half), OUTPUTS)


def half(reference: np.ndarray, outputs: np.ndarray) -> float:
    return 0.5
