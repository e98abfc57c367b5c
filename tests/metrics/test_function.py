"""A user's own function as a metric."""

import numpy as np
import pytest
from suite_metrics import MetricSuite

from seqto.metrics.agreement import top1
from seqto.metrics.function import FunctionMetric
from seqto.protocols import Metric
from seqto.types import Outputs


def flips(reference: Outputs, outputs: Outputs) -> np.ndarray:
    return top1(np.asarray(reference["scores"])) != top1(np.asarray(outputs["scores"]))


class TestFunctionMetric(MetricSuite):
    @pytest.fixture
    def metric(self) -> Metric:
        return FunctionMetric(flips)


def test_it_is_called_as_the_function() -> None:
    assert FunctionMetric(flips).name == "flips"
