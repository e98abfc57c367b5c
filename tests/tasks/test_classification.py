"""One class per sample."""

from typing import Any

import numpy as np
import pytest
from suite_tasks import SingleOutputSuite, changed

from seqto.errors import ConfigError, DatasetError
from seqto.tasks.binary import Binary
from seqto.tasks.classification import Classification
from seqto.types import Outputs, Targets

LOGITS = np.random.RandomState(0).randn(20, 6).astype(np.float32)


class TestClassification(SingleOutputSuite):
    noise = (0.01, 0.5, 5.0)

    @pytest.fixture
    def task(self) -> Classification:
        return Classification()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logits": LOGITS.copy()}

    @pytest.fixture
    def targets(self) -> Targets:
        return LOGITS.argmax(axis=1)

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        ragged = tuple(np.zeros((count, 6)) for count in range(2, 22))
        return [{"wrong": each} for each in (np.zeros((20, 1)), np.zeros((20, 3, 4, 4)), ragged)]


class TestProbabilities(TestClassification):
    noise = (0.001, 0.05, 5.0)

    @pytest.fixture
    def reference(self) -> Outputs:
        powers = np.exp(3 * LOGITS)
        return {"probabilities": powers / powers.sum(axis=1, keepdims=True)}


class TestTopK(TestClassification):
    @pytest.fixture
    def task(self) -> Classification:
        return Classification(top_k=2)


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    labels = np.random.RandomState(1).randint(0, 6, 20)
    scores = Classification().scores({"logits": LOGITS}, labels)
    found = LOGITS.argmax(axis=1)
    assert list(scores) == ["accuracy", "f1"]
    assert scores["accuracy"].value == pytest.approx(accuracy_score(labels, found))
    assert scores["f1"].value == pytest.approx(f1_score(labels, found, average="macro"))
    assert scores["f1"].low < scores["f1"].value < scores["f1"].high


@pytest.mark.parametrize(("wrong", "said"), [(6, "6"), (-1, "-1")])
def test_labels_that_the_model_does_not_have_are_refused(wrong: int, said: str) -> None:
    labels = [wrong, *[0] * 19]
    with pytest.raises(DatasetError, match=f"a label is {said}, but .* classes 0 to 5"):
        Classification().scores({"logits": LOGITS}, labels)


@pytest.mark.parametrize("label", ["cat", 1.5, [1, 2], None, 1e300, np.uint64(2**63)])
def test_labels_that_are_no_numbers_are_refused(label: object) -> None:
    with pytest.raises(DatasetError, match="a label is .* expects one whole number"):
        Classification().scores({"logits": LOGITS}, [label] * 20)


def test_a_top_k_of_all_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="task.top_k.* below 6"):
        outputs = {"logits": LOGITS}
        Classification(top_k=6).metric.losses(outputs, changed(outputs, 1))


@pytest.mark.parametrize(("task", "values"), [(Classification(), np.eye(2)), (Binary(), [-1, 1])])
def test_a_float_model_that_tells_no_samples_apart_is_remarked_on(
    task: Classification | Binary, values: Any
) -> None:
    rows = np.asarray(values, np.float32)
    assert task.remark({"y": rows}) == ""
    assert "is the same for all 3 samples" in task.remark({"y": rows[[1, 1, 1]]})
