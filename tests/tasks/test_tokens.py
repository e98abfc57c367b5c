"""A token, or a label, at each position."""

import tracemalloc

import numpy as np
import pytest
from suite_tasks import SingleOutputSuite

from seqto.errors import DatasetError
from seqto.tasks.tokens import Tokens
from seqto.types import Outputs, Targets

LENGTHS = 1 + np.arange(20) % 7
ROWS = tuple(np.random.RandomState(n).randn(n, 9).astype(np.float32) for n in LENGTHS)


class TestAllPositions(SingleOutputSuite):
    noise = (0.01, 0.5, 5.0)

    @pytest.fixture
    def task(self) -> Tokens:
        return Tokens()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logits": tuple(each.copy() for each in ROWS)}

    @pytest.fixture
    def targets(self) -> Targets:
        return [each.argmax(axis=1) for each in ROWS]

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        shapes = (20, 9), (20, 3, 1), (20, 3, 4, 4)
        ids = np.zeros((20, 3, 9), np.int64)
        return [{"wrong": each} for each in (*map(np.zeros, shapes), ids)]


class TestLastPosition(TestAllPositions):
    @pytest.fixture
    def task(self) -> Tokens:
        return Tokens(positions="last")


class TestSameLengths(TestAllPositions):
    @pytest.fixture
    def reference(self) -> Outputs:
        return {"logits": np.random.RandomState(0).randn(20, 5, 9)}

    @pytest.fixture
    def targets(self, reference: Outputs) -> Targets:
        return np.asarray(reference["logits"]).argmax(axis=-1)


def one_sample(*tokens: int) -> Outputs:
    return {"logits": np.eye(9)[None, list(tokens)]}


def test_the_loss_is_the_share_of_positions_that_differ() -> None:
    losses = Tokens().metric.losses(one_sample(1, 2, 3, 4), one_sample(1, 2, 5, 4))
    assert list(losses) == [0.25]
    losses = Tokens(positions="last").metric.losses(one_sample(1, 2, 3), one_sample(0, 0, 3))
    assert list(losses) == [0]


def test_a_text_of_another_length_differs_where_only_one_has_tokens() -> None:
    reference, outputs = one_sample(1, 2, 3, 4), one_sample(1, 2)
    assert list(Tokens().metric.losses(reference, outputs)) == [0.5]
    assert Tokens().harm(reference).per_sample(outputs)[0] > 1


def test_harm_is_the_mean_divergence_of_the_positions() -> None:
    logits, noise = np.random.RandomState(0).randn(2, 3, 4, 9)
    p, q = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (logits, logits + noise))
    wanted = (p * np.log(p / q)).sum(axis=-1)
    found = Tokens().harm({"out": logits}).per_sample({"out": logits + noise})
    np.testing.assert_allclose(found, wanted.mean(axis=1), rtol=1e-4)
    last = Tokens(positions="last").harm({"out": logits}).per_sample({"out": logits + noise})
    np.testing.assert_allclose(last, wanted[:, -1], rtol=1e-4)
    by_rows = Tokens().harm({"out": p}).per_sample({"out": q})
    np.testing.assert_allclose(by_rows, wanted.mean(axis=1), rtol=1e-4)


def test_large_vocabularies_do_not_fill_the_memory() -> None:
    logits = np.random.RandomState(0).randn(1, 256, 50_000).astype(np.float32)
    tracemalloc.start()
    Tokens().harm({"out": logits}).per_sample({"out": logits})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < logits.nbytes / 0.5


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    draw = np.random.RandomState(3)
    targets = [draw.randint(0, 9, len(each)) for each in ROWS]
    targets[4][0] = targets[5][2] = -100
    labels, found = (np.concatenate(each) for each in (targets, [row.argmax(1) for row in ROWS]))
    kept = labels != -100
    scores = Tokens().scores({"logits": ROWS}, targets)
    assert list(scores) == ["accuracy", "f1"]
    wanted = f1_score(labels[kept], found[kept], average="macro")
    assert scores["f1"].value == pytest.approx(wanted)
    assert scores["accuracy"].value == pytest.approx(accuracy_score(labels[kept], found[kept]))


def test_the_last_position_may_have_a_target_of_its_own() -> None:
    targets = [int(each[-1].argmax()) for each in ROWS]
    scores = Tokens(positions="last").scores({"logits": ROWS}, targets)
    assert scores["accuracy"].value == 1.0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ([1, 2], "expects 1 whole numbers there"),
        (["cat"], "expects 1 whole numbers there"),
        ([9], "the token 9, but the model has the tokens 0 to 8"),
        ([-1], "the token -1"),
    ],
)
def test_targets_that_do_not_fit_are_refused(target: list, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        Tokens().scores({"logits": ROWS[:1]}, [target])


def test_targets_that_all_do_not_count_are_refused() -> None:
    with pytest.raises(DatasetError, match="every target is -100"):
        Tokens().scores({"logits": ROWS[:1]}, [[-100]])
