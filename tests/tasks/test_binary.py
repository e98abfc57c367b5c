"""Yes or no for each sample."""

import numpy as np
import pytest
from suite_tasks import SingleOutputSuite

from seqto.errors import DatasetError, ModelError
from seqto.tasks.binary import Binary
from seqto.types import Outputs, Targets

LOGITS = np.random.RandomState(0).randn(20, 1).astype(np.float32) * 2


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


class TestLogits(SingleOutputSuite):
    noise = (0.01, 0.5, 5.0)

    @pytest.fixture
    def task(self) -> Binary:
        return Binary()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logit": LOGITS.copy()}

    @pytest.fixture
    def targets(self) -> Targets:
        return [bool(each > 0) for each in LOGITS[:, 0]]

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        ragged = tuple(np.zeros(count) for count in range(1, 21))
        return [{"wrong": each} for each in (np.zeros((20, 3)), np.zeros((20, 1, 4, 4)), ragged)]


class TestProbabilities(TestLogits):
    noise = (0.003, 0.1, 3.0)

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"probability": sigmoid(LOGITS[:, 0])}


class TestTwoClasses(TestLogits):
    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logits": np.concatenate([-LOGITS / 2, LOGITS / 2], axis=1)}


def flips(task: Binary, reference: np.ndarray, outputs: np.ndarray) -> list[float]:
    return list(task.metric.losses({"out": reference}, {"out": outputs}))


def test_whole_numbers_are_yes_and_no_or_refused() -> None:
    assert flips(Binary(), np.array([0, 1, 1]), np.array([0, 0, 1])) == [0, 1, 0]
    with pytest.raises(ModelError, match="whole numbers up to 2.*'model.outputs="):
        flips(Binary(), np.array([0, 1, 2]), np.array([0, 1, 2]))


def test_what_crosses_the_threshold_is_lost() -> None:
    probabilities, logits = np.array([0.2, 0.6, 0.9]), np.array([-2.0, 0.6, 3.0])
    assert flips(Binary(), probabilities, np.array([0.4, 0.4, 0.6])) == [0, 1, 0]
    assert flips(Binary(), logits, np.array([0.1, 0.4, 0.6])) == [1, 0, 0]
    assert flips(Binary(threshold=0.8), probabilities, np.array([0.4, 0.4, 0.6])) == [0, 0, 1]


def test_quantized_probabilities_need_not_add_up_to_1() -> None:
    # 8 bits have steps of 1/256, so that two classes may add up to 0.996 or 1.004.
    probabilities = np.array([[0.4, 0.6], [0.9, 0.1]])
    rounded = np.array([[0.4, 0.592], [0.908, 0.1]])
    for threshold in (None, 0.3, 0.55):
        assert flips(Binary(threshold=threshold), probabilities, rounded) == [0, 0]
    assert (Binary().harm({"out": probabilities}).per_sample({"out": rounded}) < 1e-3).all()


def test_two_logits_are_never_taken_for_probabilities() -> None:
    # The second class leads by 0.3: that is yes, though 0.3 is less than 0.5.
    reference = np.array([[1.0, 1.3], [2.0, 2.3]])
    assert flips(Binary(), reference, np.array([[1.0, 0.9], [2.0, 2.1]])) == [1, 0]


def test_a_threshold_of_two_logits_is_a_probability() -> None:
    reference, outputs = np.array([[0.0, 3.0]]), np.array([[0.0, 1.0]])
    assert flips(Binary(threshold=0.9), reference, outputs) == [1]
    assert flips(Binary(threshold=0.5), reference, outputs) == [0]


def test_two_classes_are_as_their_one_value() -> None:
    both = {"out": np.concatenate([np.zeros_like(LOGITS), LOGITS], axis=1)}
    one, noise = {"out": LOGITS}, np.random.RandomState(1).randn(20, 1)
    noisy = {"out": np.concatenate([np.zeros_like(LOGITS), LOGITS + noise], axis=1)}
    wanted = Binary().harm(one).per_sample({"out": LOGITS + noise})
    np.testing.assert_allclose(Binary().harm(both).per_sample(noisy), wanted)


def test_harm_is_the_divergence_of_the_textbook() -> None:
    p, q = np.array([0.2, 0.7]), np.array([0.3, 0.65])
    wanted = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    found = Binary().harm({"out": p}).per_sample({"out": q})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    labels = np.random.RandomState(2).randint(0, 2, 20)
    scores = Binary().scores({"out": LOGITS}, labels)
    assert list(scores) == ["f1", "accuracy"]
    assert scores["f1"].value == pytest.approx(f1_score(labels, LOGITS[:, 0] > 0))
    assert scores["accuracy"].value == np.mean((LOGITS[:, 0] > 0) == labels)


def test_without_positive_targets_there_is_no_f1() -> None:
    assert list(Binary().scores({"out": LOGITS}, [0] * 20)) == ["accuracy"]


def test_other_labels_are_refused() -> None:
    with pytest.raises(DatasetError, match="a label is 2"):
        Binary().scores({"out": LOGITS}, [2] * 20)
