"""Samples that a Python program has in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from suite_datasets import DatasetSuite

from seqto.datasets.memory_samples import InMemorySamples
from seqto.errors import ConfigError, DatasetError
from seqto.protocols import Dataset
from seqto.types import TensorSpec

SPEC = TensorSpec("x", (None, 3, 4), "float32")


def images(count: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).rand(count, 3, 4).astype(np.float32)


class Tensor:
    """What torch's tensors look like that are part of a computation."""

    def __init__(self, array: np.ndarray, free: bool = False) -> None:
        self._array, self._free = array, free

    def detach(self) -> "Tensor":
        return Tensor(self._array, free=True)

    def cpu(self) -> "Tensor":
        return self

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        assert self._free, "cannot call numpy() on a tensor that requires grad"
        return self._array


class Loader:
    """What a torch DataLoader looks like: batches of inputs and labels, again and again."""

    def __init__(self, array: np.ndarray, labels: np.ndarray, size: int = 8) -> None:
        self._array, self._labels, self._size = array, labels, size

    def __len__(self) -> int:
        return -(-len(self._array) // self._size)

    def __iter__(self) -> Iterator[list[Any]]:
        for at in range(0, len(self._array), self._size):
            chosen = slice(at, at + self._size)
            yield [Tensor(self._array[chosen]), Tensor(self._labels[chosen], free=True)]


class TestArrays(DatasetSuite):
    @pytest.fixture
    def dataset(self) -> Dataset:
        return InMemorySamples(samples=images(), labels=np.arange(40) % 10)

    @pytest.fixture
    def other(self) -> Dataset:
        return InMemorySamples(samples=images(seed=1), labels=np.arange(40) % 10)

    @pytest.fixture
    def spec(self) -> TensorSpec:
        return SPEC


class TestLoader(TestArrays):
    @pytest.fixture
    def dataset(self) -> Dataset:
        return InMemorySamples(samples=Loader(images(), np.arange(40) % 10))

    @pytest.fixture
    def other(self) -> Dataset:
        return InMemorySamples(samples=Loader(images(seed=1), np.arange(40) % 10))

    def test_an_input_of_another_rank_is_refused(self, dataset: Dataset) -> None:
        wanted = r"shape \[8, 3, 4\], but the model input 'x' float32\[\?, 16\] has 2 axes"
        with pytest.raises(DatasetError, match=wanted):
            dataset.load([TensorSpec("x", (None, 16), "float32")])


LABELS = np.arange(40) % 10
FORMS: dict[str, Any] = {
    "array": (images(), LABELS),
    "dict": ({"x": images()}, LABELS),
    "other name": ({"any": images()}, LABELS),
    "list of samples": (list(images()), None),
    "list of pairs": (list(zip(images(), LABELS.tolist(), strict=True)), None),
    "generator of pairs": (lambda: zip(images(), LABELS, strict=True), None),
    "dicts": ([{"x": each} for each in images()], None),
    "dicts in pairs": ([({"x": each}, 1) for each in images()], None),
    "batches": ([images()[:16], images()[16:]], None),
    "loader": (Loader(images(), LABELS), None),
    "float64": (images().astype(np.float64), LABELS),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_samples(form: str) -> None:
    samples, labels = FORMS[form]
    samples = samples() if callable(samples) else samples
    found = InMemorySamples(samples=samples, labels=labels).load([SPEC])
    wanted = InMemorySamples(samples=images(), labels=LABELS).load([SPEC])
    for one, two in (
        (found.calibration, wanted.calibration),
        (found.evaluation, wanted.evaluation),
    ):
        np.testing.assert_array_equal(one.inputs["x"], two.inputs["x"])
        assert one.inputs["x"].dtype == np.float32


def test_labels_come_from_pairs() -> None:
    splits = InMemorySamples(samples=Loader(images(), LABELS)).load([SPEC])
    wanted = InMemorySamples(samples=images(), labels=LABELS).load([SPEC])
    assert splits.evaluation.targets is not None and wanted.evaluation.targets is not None
    np.testing.assert_array_equal(splits.evaluation.targets, wanted.evaluation.targets)
    assert splits.fingerprint == wanted.fingerprint


def test_an_iterator_is_read_but_once_and_no_further_than_needed() -> None:
    given: list[int] = []

    def endless() -> Iterator[np.ndarray]:
        while True:
            given.append(len(given))
            yield np.full((3, 4), len(given), np.float32)

    dataset = InMemorySamples(samples=endless(), calibration_size=10, evaluation_size=20)
    first, again = dataset.load([SPEC]), dataset.load([SPEC])
    assert len(given) == 30
    assert first.fingerprint == again.fingerprint
    assert (len(first.calibration), len(first.evaluation)) == (10, 20)


@pytest.mark.parametrize(
    ("count", "calibration", "evaluation"),
    [(20, 5, 15), (40, 10, 30), (399, 99, 300), (400, 100, 300), (1000, 100, 300)],
)
def test_few_samples_are_taken_in_proportion(count: int, calibration: int, evaluation: int) -> None:
    splits = InMemorySamples(samples=images(count)).load([SPEC])
    assert (len(splits.calibration), len(splits.evaluation)) == (calibration, evaluation)


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ({"calibration_size": 20}, (20, 40)),
        ({"calibration_size": 50}, (50, 10)),
        ({"evaluation_size": 10, "calibration_size": 10}, (10, 10)),
    ],
    ids=str,
)
def test_of_what_is_not_said_there_is_what_is_left(
    sizes: dict[str, int], found: tuple[int, int]
) -> None:
    splits = InMemorySamples(samples=images(60), **sizes).load([SPEC])
    assert (len(splits.calibration), len(splits.evaluation)) == found


def test_copies_of_a_sample_do_not_count() -> None:
    twice = np.concatenate([images(30), images(30)])
    splits = InMemorySamples(samples=twice).load([SPEC])
    assert (len(splits.calibration), len(splits.evaluation)) == (7, 23)


@pytest.mark.parametrize(
    ("samples", "labels", "text"),
    [
        (images(19), None, "samples has 19 samples, too few .* give 20 or more"),
        (images(), np.arange(39), "40 of x, 39 of the labels"),
        (images(), "cat", "labels cannot be of type str"),
        ([], None, "samples gives nothing"),
        (iter(()), None, "samples gives nothing"),
        ([*images(), np.zeros((3, 5), np.float32)], None, r"different shapes, \[3, 4\] and \[3, 5"),
        ([(each, 1) for each in images()] + [images()[0]], None, r"sample 40 is .* all or none"),
        ([(each, 1, 2) for each in images()], None, "gives a tuple"),
        ([(images(), np.arange(39))], None, r"item 0 .* a batch of 40 with 39 labels"),
        ([(images(), [0] * 41)], None, r"a batch of 40 with 41 labels"),
        ([(images(), 3)], None, r"a batch of 40 with the label 3"),
        ([*images(), {"y": 1}], None, "item 40 .* model wants 'x' .* gives y"),
        (["a", "b"], None, "gives a str"),
        (images().astype(str), None, "does not fit"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(samples: Any, labels: Any, text: str) -> None:
    with pytest.raises(DatasetError, match=text):
        InMemorySamples(samples=samples, labels=labels).load([SPEC])


@pytest.mark.parametrize(
    ("samples", "labels", "text"),
    [
        (list(images()), LABELS, "pairs of a sample and its label"),
        (3, None, "cannot be of type int"),
    ],
)
def test_what_is_no_set_of_samples_is_refused(samples: Any, labels: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        InMemorySamples(samples=samples, labels=labels).load([SPEC])


def test_a_command_line_has_nothing_in_memory() -> None:
    with pytest.raises(ConfigError, match=r"seqto\.tune\(model, samples\).*dataset=images"):
        InMemorySamples()


def test_what_has_samples_by_number_gives_them_in_a_drawn_order() -> None:
    class Numbered:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            assert type(index) is int
            return np.full((3, 4), index, np.float32), index // 50

    splits = InMemorySamples(samples=Numbered(), calibration_size=10, evaluation_size=20).load(
        [SPEC]
    )
    labels = splits.evaluation.targets
    assert labels is not None and set(labels.tolist()) == {0, 1}, "not the first class only"


def test_models_of_several_inputs_take_dicts() -> None:
    specs = [SPEC, TensorSpec("mask", (None,), "int64")]
    rows = [{"x": each, "mask": at} for at, each in enumerate(images())]
    batches = [{"x": images()[:16], "mask": np.arange(16)}]
    batches += [{"x": images()[16:], "mask": np.arange(16, 40)}]
    whole = {"x": images(), "mask": np.arange(40)}
    found = {
        InMemorySamples(samples=each).load(specs).fingerprint for each in (rows, batches, whole)
    }
    assert len(found) == 1


BOXES = [{"boxes": np.full((at % 3, 4), at, np.float32), "labels": [at]} for at in range(40)]


@pytest.mark.parametrize(
    ("labels", "other"),
    [
        ([f"text {at}" for at in range(40)], ["text"] * 40),
        (BOXES, [*BOXES[:-1], {"boxes": np.zeros((1, 4)), "labels": [7]}]),
        (np.arange(40 * 6).reshape(40, 2, 3), np.zeros((40, 2, 3))),
        (list(np.linspace(0, 1, 40)), list(np.zeros(40))),
        (np.array(["a", "b"] * 20), np.array(["a", "a"] * 20)),
    ],
    ids=["texts", "boxes", "masks", "floats", "strings"],
)
def test_labels_may_be_anything_and_stay_with_their_samples(labels: Any, other: Any) -> None:
    numbered = np.arange(40, dtype=np.float32)[:, None, None] + np.zeros((40, 3, 4), np.float32)
    forms = [
        InMemorySamples(samples=numbered, labels=labels),
        InMemorySamples(samples=[(row, labels[at]) for at, row in enumerate(numbered)]),
        InMemorySamples(
            samples=[(numbered[at : at + 8], labels[at : at + 8]) for at in range(0, 40, 8)]
        ),
    ]
    for each in forms:
        evaluation = each.load([SPEC]).evaluation
        assert evaluation.targets is not None and len(evaluation.targets) == 30
        for row, target in zip(evaluation.inputs["x"], evaluation.targets, strict=True):
            wanted = labels[int(row[0, 0])]
            np.testing.assert_equal(target, wanted)
        first = evaluation.first(3)
        assert first.targets is not None and len(first.targets) == 3
    fingerprint = forms[0].load([SPEC]).fingerprint
    assert fingerprint == InMemorySamples(samples=numbered, labels=labels).load([SPEC]).fingerprint
    assert fingerprint != InMemorySamples(samples=numbered, labels=other).load([SPEC]).fingerprint


def test_targets_of_a_batch_may_be_arrays_by_name() -> None:
    collated = [(images(), {"mask": np.arange(80).reshape(40, 2), "kind": list("ab" * 20)})]
    targets = InMemorySamples(samples=collated).load([SPEC]).evaluation.targets
    assert targets is not None
    assert {each["kind"] for each in targets} == {"a", "b"}
    assert all(each["mask"].shape == (2,) for each in targets)


@pytest.mark.parametrize("form", ["columns", "list", "iterator"])
def test_it_knows_which_inputs_it_has(form: str) -> None:
    rows = [{"x": each, "state": np.ones(2, np.float32)} for each in images()]
    samples = {
        "columns": {"x": images(), "state": np.ones((40, 2), np.float32)},
        "list": rows,
        "iterator": iter(rows),
    }[form]
    dataset = InMemorySamples(samples=samples)
    assert dataset.has("state") and not dataset.has("other")
    splits = dataset.load([SPEC, TensorSpec("state", (None, 2), "float32")])
    assert len(splits.calibration) + len(splits.evaluation) == 40, "none was lost by looking"
    assert not InMemorySamples(samples=images()).has("x")
