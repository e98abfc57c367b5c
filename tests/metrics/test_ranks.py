"""The paper's dissimilarity, by hand and beside SciPy."""

import numpy as np
import pytest
from scipy.stats import weightedtau
from suite_metrics import ClassMetricSuite, loss

from seqto.errors import ConfigError
from seqto.metrics.ranks import RankDissimilarity


class TestRankDissimilarity(ClassMetricSuite):
    """The conformance suite."""

    @pytest.fixture
    def metric(self) -> RankDissimilarity:
        """Return the default."""
        return RankDissimilarity()


def scores(*top: int) -> np.ndarray:
    """Return one sample's scores of 20 classes with these at the top, in this order."""
    row = np.zeros((1, 20), np.float32)
    row[0, list(top)] = np.arange(len(top), 0, -1)
    return row


def test_class_numbers_are_taken_as_scores() -> None:
    one, two = (7, 3, 9, 1, 4), (7, 3, 9, 4, 1)
    wanted = 1 - (1 + weightedtau(one, two).statistic) / 2
    assert loss(RankDissimilarity(), scores(*one), scores(*two)) == pytest.approx(wanted)
    assert wanted > 0


def test_opposite_numbers_are_as_far_apart_as_can_be() -> None:
    # What the paper's measure means: these two agree on the set of classes, and on nothing else.
    assert loss(RankDissimilarity(), scores(1, 2, 3, 4, 5), scores(5, 4, 3, 2, 1)) == 1.0


def test_samples_count_alike() -> None:
    reference = np.concatenate([scores(1, 2, 3, 4, 5)] * 4)
    outputs = np.concatenate([*[scores(1, 2, 3, 4, 5)] * 3, scores(5, 4, 3, 2, 1)])
    assert loss(RankDissimilarity(), reference, outputs) == 0.25


def test_more_classes_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="metric.k=30 is more than the 20 classes"):
        loss(RankDissimilarity(k=30), scores(1), scores(2))
