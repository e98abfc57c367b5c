"""A vector per sample, whose direction counts."""

import numpy as np
import pytest
from suite_tasks import SingleOutputSuite

from seqto.errors import DatasetError, ModelError
from seqto.tasks.embedding import Embedding
from seqto.types import Outputs, Targets

GROUPS = np.repeat(np.arange(5), 4)
DRAW = np.random.RandomState(0)
VECTORS = (3 * DRAW.randn(5, 16)[GROUPS] + DRAW.randn(20, 16)).astype(np.float32)


class TestCosine(SingleOutputSuite):
    noise = (0.01, 0.5, 10.0)

    @pytest.fixture
    def task(self) -> Embedding:
        return Embedding()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"embedding": VECTORS.copy()}

    @pytest.fixture
    def targets(self) -> Targets:
        return [f"group {each}" for each in GROUPS]

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        ragged = tuple(np.zeros((count, 16)) for count in range(2, 22))
        shapes = (20, 1), (20, 7, 16), (20, 3, 4, 4)
        return [{"wrong": each} for each in (*map(np.zeros, shapes), ragged)]


class TestNeighbour(TestCosine):
    @pytest.fixture
    def task(self) -> Embedding:
        return Embedding(loss="neighbour", k=3)


class TestPooledMean(TestCosine):
    noise = (0.01, 0.5, 20.0)

    @pytest.fixture
    def task(self) -> Embedding:
        return Embedding(pooling="mean")

    @pytest.fixture
    def reference(self) -> Outputs:
        # Texts of 1 to 5 tokens.
        lengths = 1 + np.arange(20) % 5
        return {
            "hidden": tuple(np.tile(each, (n, 1)) for each, n in zip(VECTORS, lengths, strict=True))
        }

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        ragged = tuple(np.zeros((3, count)) for count in range(2, 22))
        return [{"wrong": each} for each in (np.zeros((20, 3, 4, 4)), np.zeros((20, 1)), ragged)]


class TestPooledFirst(TestPooledMean):
    @pytest.fixture
    def task(self) -> Embedding:
        return Embedding(pooling="first")


def losses(task: Embedding, reference: np.ndarray, outputs: np.ndarray) -> list[float]:
    return list(task.metric.losses({"out": reference}, {"out": outputs}))


def test_the_loss_is_one_minus_the_cosine() -> None:
    reference = np.array([[1.0, 0], [1, 0], [1, 0], [1, 0]])
    outputs = np.array([[5.0, 0], [1, 1], [0, 2], [-1, 0]])
    assert losses(Embedding(), reference, outputs) == pytest.approx([0, 1 - 0.5**0.5, 1, 1])
    harm = Embedding().harm({"out": reference}).per_sample({"out": outputs})
    assert harm == pytest.approx([0, 1 - 0.5**0.5, 1, 2])


def test_an_embedding_that_collapses_is_lost() -> None:
    zeros = np.zeros_like(VECTORS)
    assert losses(Embedding(), VECTORS, zeros) == [1.0] * 20
    assert losses(Embedding(), zeros, zeros) == [0.0] * 20


def test_large_values_do_not_overflow() -> None:
    large = VECTORS.astype(np.float64) * 1e200
    noisy = large + 0.1 * large[:, ::-1]
    wanted = losses(Embedding(), large / 1e200, noisy / 1e200)
    assert losses(Embedding(), large, noisy) == pytest.approx(wanted)


def test_a_sample_is_lost_when_its_nearest_one_changes() -> None:
    reference = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    outputs = reference.copy()
    outputs[1] = [0.05, 1.0]
    # The first has lost its neighbour, the second has left; the others have a nearer one now.
    found = losses(Embedding(loss="neighbour"), reference, outputs)
    assert found == [0, 1, 1, 1] or found == [1, 1, 1, 1]
    assert losses(Embedding(loss="neighbour"), reference, reference * 3) == [0, 0, 0, 0]


def test_neighbours_that_are_equally_near_may_change_places() -> None:
    reference = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    noise = np.random.RandomState(0).randn(4, 2) * 1e-8
    assert losses(Embedding(loss="neighbour"), reference, reference + noise) == [0, 0, 0, 0]


def test_neighbours_need_a_choice() -> None:
    with pytest.raises(DatasetError, match="task.loss=neighbour .* 2 samples"):
        losses(Embedding(loss="neighbour"), VECTORS[:2], VECTORS[:2])


def test_vectors_per_position_ask_for_pooling() -> None:
    outputs = {"last_hidden_state": np.zeros((20, 7, 16))}
    said = r"'last_hidden_state' has the shape \[7, 16\].*task.pooling=mean or task.pooling=first"
    with pytest.raises(ModelError, match=said):
        Embedding().harm(outputs)


def test_pooling_takes_the_mean_or_the_first() -> None:
    rows = np.random.RandomState(0).randn(6, 7, 16)
    other = rows.copy()
    other[:, 1:] += 1
    assert losses(Embedding(pooling="first"), rows, other) == [0.0] * 6
    mean = losses(Embedding(), rows.mean(axis=1), other.mean(axis=1))
    assert losses(Embedding(pooling="mean"), rows, other) == pytest.approx(mean)
    assert min(mean) > 0


@pytest.mark.parametrize("k", [1, 2, 5])
def test_recall_is_that_of_plain_loops(k: int) -> None:
    noisy = VECTORS + 4 * np.random.RandomState(1).randn(*VECTORS.shape)
    unit = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    hits = []
    for one in range(20):
        others = sorted((n for n in range(20) if n != one), key=lambda n: -unit[one] @ unit[n])
        hits.append(any(GROUPS[other] == GROUPS[one] for other in others[:k]))
    scores = Embedding(k=k).scores({"out": noisy}, GROUPS)
    assert scores["recall"].value == np.mean(hits)


def test_who_is_alone_in_its_group_does_not_count() -> None:
    targets = [*GROUPS[:19], "alone"]
    assert Embedding().scores({"out": VECTORS}, targets)["recall"].value == 1.0


@pytest.mark.parametrize("task", [Embedding(), Embedding(k=20)])
def test_recall_that_cannot_be_measured_is_refused(task: Embedding) -> None:
    targets = range(20) if task.k == 1 else GROUPS
    with pytest.raises(DatasetError, match="recall cannot be measured on 20 samples"):
        task.scores({"out": VECTORS}, targets)


def test_many_samples_are_compared_in_blocks() -> None:
    rows = np.random.RandomState(3).randn(1100, 8)
    found = Embedding(loss="neighbour").metric.losses({"out": rows}, {"out": rows[:, ::-1]})
    # Reversed values keep all cosines.
    assert not np.any(found)
