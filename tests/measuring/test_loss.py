"""The losses as the metric gives them, and what is wrong with a metric."""

from typing import NoReturn

import numpy as np
import pytest

from seqto.errors import MetricError
from seqto.measuring.loss import check_metric, losses_of
from seqto.metrics.agreement import Top1Agreement, TopKAgreement
from seqto.metrics.function import FunctionMetric
from seqto.types import Outputs

ROWS = np.random.RandomState(0).randn(20, 10)
OUTPUTS = {"y": ROWS}


def test_losses_are_the_metrics() -> None:
    others = {"y": ROWS[::-1].copy()}
    others["y"][:3] = ROWS[:3]
    wanted = (ROWS.argmax(axis=1) != others["y"].argmax(axis=1)).astype(float)
    np.testing.assert_array_equal(losses_of(Top1Agreement(), OUTPUTS, others), wanted)
    assert 0 < wanted.mean() < 1
    check_metric(Top1Agreement(), OUTPUTS)


@pytest.mark.parametrize("loss", [-0.1, 1.5, float("nan"), float("inf")])
def test_what_is_no_fraction_is_refused_with_its_sample(loss: float) -> None:
    def wrong(reference: Outputs, outputs: Outputs) -> list[float]:
        return [0.0] * 7 + [loss] + [0.0] * 12

    with pytest.raises(
        MetricError, match=r"metric wrong returned .* for sample 7: .*from 0 \(the same\) to 1"
    ):
        losses_of(FunctionMetric(wrong), OUTPUTS, OUTPUTS)


def test_what_a_metric_raises_is_told_with_its_name() -> None:
    def mine(reference: Outputs, outputs: Outputs) -> NoReturn:
        raise ValueError("my boom")

    told = r"metric mine raised ValueError: my boom.*'y' \[\?, 10\]"
    with pytest.raises(MetricError, match=told):
        losses_of(FunctionMetric(mine), OUTPUTS, OUTPUTS)


def test_what_a_metric_raises_is_told_with_its_sample() -> None:
    def mine(reference: Outputs, outputs: Outputs) -> list[float]:
        for row in outputs["y"]:
            if row[0] == ROWS[3, 0]:
                raise ValueError("my boom")
        return [0.0] * len(outputs["y"])

    with pytest.raises(MetricError, match=r"my boom \(sample 3\)"):
        losses_of(FunctionMetric(mine), OUTPUTS, OUTPUTS)


@pytest.mark.parametrize(
    ("returned", "shown"), [(None, "nan"), (0.5, "0.5"), (np.zeros(3), r"shape \[3\]")]
)
def test_one_loss_per_sample_is_asked_for(returned: object, shown: str) -> None:
    with pytest.raises(MetricError, match=f"returned .*{shown}.*for each of the 20 samples"):
        losses_of(FunctionMetric(lambda a, b: returned), OUTPUTS, OUTPUTS)  # type: ignore


def test_a_metric_of_seqtos_own_says_what_is_wrong() -> None:
    with pytest.raises(MetricError, match=r"metric.k=10 .* Choose metric.k .*below 10"):
        check_metric(TopKAgreement(k=10), OUTPUTS)


def test_outputs_that_are_the_same_lose_nothing() -> None:
    with pytest.raises(MetricError, match=r"metric half gives a loss of 0.5 .* has to be 0"):
        check_metric(FunctionMetric(half), OUTPUTS)


def half(reference: Outputs, outputs: Outputs) -> np.ndarray:
    return np.full(len(reference["y"]), 0.5)
