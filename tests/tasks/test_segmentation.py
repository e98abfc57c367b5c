"""Segmentation: classes or masks, what is lost, and what is refused."""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

from seqto.errors import DatasetError, ModelError, SeqtoError
from seqto.protocols import Task
from seqto.tasks.segmentation import Segmentation
from seqto.types import NEGLIGIBLE, RUINED, Outputs, Targets

DRAW = np.random.RandomState(0)


def maps(classes: int = 3) -> np.ndarray:
    """Return maps of 24 by 32 pixels: a background, with a rectangle of each other class."""
    found = np.zeros((20, 24, 32), np.int64)
    for image in found:
        for label in range(1, classes):
            row, column = DRAW.randint(0, 16), DRAW.randint(0, 24)
            image[row : row + 8, column : column + 8] = label
    return found


MAPS = maps()


def logits(classes: np.ndarray, count: int = 3, sure: float = 6.0) -> np.ndarray:
    """Return scores [samples, classes, height, width] whose best classes these are."""
    noise = np.random.RandomState(1).randn(len(classes), count, *classes.shape[1:])
    return (noise + sure * np.eye(count)[classes].transpose(0, 3, 1, 2)).astype(np.float32)


def softmax(values: np.ndarray) -> np.ndarray:
    """Return distributions over the first axis behind the samples."""
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return probabilities."""
    return 1 / (1 + np.exp(-values))


def mask(classes: np.ndarray) -> np.ndarray:
    """Return the logits of one object."""
    noise = np.random.RandomState(1).randn(*classes.shape)
    return (np.where(classes > 0, 4.0, -4.0) + noise * 0.5).astype(np.float32)


def miss(one: np.ndarray, other: np.ndarray, labels: range) -> float:
    """Return one minus the mean IoU, by the book."""
    found = []
    for label in labels:
        first, second = one == label, other == label
        if (first | second).any():
            found.append((first & second).sum() / (first | second).sum())
    return 1 - float(np.mean(found)) if found else 0.0


KINDS: dict[str, tuple[Any, dict[str, Any], range]] = {
    "classes first": (logits, {}, range(3)),
    "classes last": (lambda found: logits(found).transpose(0, 2, 3, 1), {}, range(3)),
    "a distribution": (lambda found: softmax(logits(found)), {}, range(3)),
    "probabilities": (lambda found: sigmoid(logits(found) - 3), {}, range(3)),
    "an axis that is named": (lambda found: logits(found), {"axis": 0}, range(3)),
    "ids": (lambda found: found.astype(np.int32), {}, range(3)),
    "a mask": (mask, {}, range(1, 2)),
    "a mask of one channel": (lambda found: mask(found)[:, None], {}, range(1, 2)),
    "a mask with the channel last": (lambda found: mask(found)[..., None], {}, range(1, 2)),
    "probabilities of a mask": (lambda found: sigmoid(mask(found)), {}, range(1, 2)),
    "a threshold": (lambda found: mask(found) + 7, {"threshold": 7.0}, range(1, 2)),
    "images of several sizes": (
        lambda found: tuple(each[:, : 20 + index % 4] for index, each in enumerate(logits(found))),
        {},
        range(3),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Any, Segmentation, range]:
    write, keys, labels = KINDS[request.param]
    return write, Segmentation(**keys), labels


def test_losses_are_those_of_the_book(kind: tuple[Any, Segmentation, range]) -> None:
    write, task, labels = kind
    other = np.roll(MAPS, 3, axis=2)
    reference, outputs = ({"out": write(each)} for each in (MAPS, other))
    assert (task.metric.losses(reference, reference) == 0).all()
    found = task.metric.losses(reference, outputs)
    for index, (one, two, loss) in enumerate(zip(MAPS, other, found, strict=True)):
        if isinstance(reference["out"], tuple):
            one, two = (each[: 20 + index % 4] for each in (one, two))
        if 1 in labels and 2 not in labels:
            one, two = (np.minimum(each, 1) for each in (one, two))
        assert loss == pytest.approx(miss(one, two, labels))
    assert 0.1 < found.mean() < 0.9


def test_harm_is_0_for_equal_outputs_and_ruin_for_others(
    kind: tuple[Any, Segmentation, range],
) -> None:
    write, task, _ = kind
    reference = {"out": write(MAPS)}
    harm = task.harm(reference)
    assert (harm.per_sample(reference) == 0).all()
    steps = [harm.per_sample({"out": write(np.roll(MAPS, by, axis=2))}).mean() for by in (1, 3, 6)]
    assert steps == sorted(steps)
    assert harm.per_sample({"out": write(MAPS * 0)}).mean() > RUINED


def test_a_candidate_that_is_not_a_number_is_lost(kind: tuple[Any, Segmentation, range]) -> None:
    write, task, _ = kind
    reference, entries = {"out": write(MAPS)}, list(write(MAPS))
    if entries[0].dtype.kind != "f":
        pytest.skip("ids are integers, and always numbers")
    entries[2] = np.full_like(entries[2], np.nan)
    outputs = {"out": tuple(entries)}
    assert task.metric.losses(reference, outputs).tolist() == [0, 0, 1, *[0] * 17]
    harms = task.harm(reference).per_sample(outputs)
    assert harms[2] > RUINED and harms.sum() == harms[2] < np.inf


def test_it_can_be_pickled(kind: tuple[Any, Segmentation, range]) -> None:
    write, task, _ = kind
    assert pickle.loads(pickle.dumps(task)) == task
    harm = pickle.loads(pickle.dumps(task.harm({"out": write(MAPS)})))
    assert harm.per_sample({"out": write(MAPS * 0)}).mean() > 0


def test_small_noise_does_little_harm() -> None:
    reference = logits(MAPS)
    harm = Segmentation().harm({"out": reference})
    noise = np.random.RandomState(5).randn(*reference.shape)
    harms = [harm.per_sample({"out": reference + by * noise}).mean() for by in (1e-4, 1e-3, 1e-2)]
    assert 0 < harms[0] < harms[1] < harms[2] < NEGLIGIBLE


def test_divergence_of_classes_that_are_alike_is_that_of_the_textbook() -> None:
    # Half of the pixels in each class: then weights are 1.
    halves = np.zeros((4, 8, 16), int)
    halves[:, :4] = 1
    one, other = logits(halves, 2), logits(halves, 2, sure=5.0)
    wanted, got = softmax(one.astype(float)), softmax(other.astype(float))
    textbook = (wanted * np.log(wanted / got)).sum(axis=1).mean(axis=(1, 2))
    found = Segmentation(axis=0).harm({"out": one}).per_sample({"out": other})
    same = (one.argmax(axis=1) == halves).all() and (other.argmax(axis=1) == halves).all()
    assert same
    assert found == pytest.approx(textbook, rel=1e-4)


def test_losing_a_small_object_is_ruin() -> None:
    # 4 of 4096 pixels: their plain mean would be next to nothing.
    small = np.zeros((8, 64, 64), int)
    small[:, 10:12, 10:12] = 1
    reference, outputs = {"out": mask(small)}, {"out": mask(small * 0)}
    task = Segmentation()
    assert (task.metric.losses(reference, outputs) == 1).all()
    assert task.harm(reference).per_sample(outputs).mean() > RUINED


class TestClasses:
    noise = (0.01, 1.0, 8.0)

    @pytest.fixture
    def task(self) -> Task:
        return Segmentation()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"out": logits(MAPS)}

    @pytest.fixture
    def targets(self) -> Targets:
        return list(MAPS)

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        return [{"wrong": np.zeros((20, *shape))} for shape in ((10,), (5, 6, 7), (2, 2, 2, 2))]

    def test_misfits_are_refused(self, task: Task, misfits: list[Outputs]) -> None:
        for outputs in misfits:
            with pytest.raises(ModelError, match=r"'wrong' has the shape \["):
                task.harm(outputs)

    def test_perfect_masks_have_a_mean_iou_of_1(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        assert task.scores(reference, reference["out"].argmax(axis=1))["mean_iou"].value == 1
        swapped = [*targets[10:], *targets[:10]]
        assert task.scores(reference, swapped)["mean_iou"].value < 0.6

    def test_mean_iou_is_that_of_all_pixels_together(self, task: Task) -> None:
        other = np.roll(MAPS, 2, axis=1)
        found = task.scores({"out": logits(other, sure=30.0)}, list(MAPS))["mean_iou"]
        assert found.value == pytest.approx(1 - miss(MAPS, other, range(3)))
        assert found.low < found.value < found.high

    def test_pixels_to_ignore_do_not_count(self, task: Task) -> None:
        other, targets = np.roll(MAPS, 2, axis=1), MAPS.copy()
        targets[other != MAPS] = 255
        assert task.scores({"out": logits(other, sure=30.0)}, list(targets))["mean_iou"].value == 1
        with pytest.raises(DatasetError, match="class 255, but the model has the classes 0 to 2"):
            Segmentation(ignore=None).scores({"out": logits(other)}, list(targets))

    def test_targets_of_another_size_are_resized_only_on_demand(self, reference: Outputs) -> None:
        large = [np.kron(each, np.ones((2, 2), int)) for each in MAPS]
        with pytest.raises(DatasetError, match=r"\[48, 64\].*\[24, 32\].*task.resize_targets=true"):
            Segmentation().scores(reference, large)
        resized = Segmentation(resize_targets=True).scores(reference, large)
        assert resized == Segmentation().scores(reference, list(MAPS))

    @pytest.mark.parametrize(
        ("target", "said"),
        [(np.zeros(5), "has the shape"), (np.full((24, 32), 0.5), "whole"), ("cat", "shape")],
    )
    def test_what_is_no_map_is_refused(self, reference: Outputs, target: Any, said: str) -> None:
        with pytest.raises(DatasetError, match=said):
            Segmentation().scores(reference, [*MAPS[:19], target])

    def test_masks_of_0_and_255_do_not_lose_their_object(self) -> None:
        with pytest.raises(DatasetError, match="Write masks as 0 and 1"):
            Segmentation().scores({"out": mask(MAPS * 0)}, list(np.minimum(MAPS, 1) * 255))


@pytest.mark.parametrize(
    ("outputs", "keys", "said"),
    [
        (
            {"a": logits(MAPS), "b": logits(MAPS)},
            {},
            r"2 outputs.*model.outputs=\[a\]",
        ),
        ({"a": np.zeros((4, 30, 40, 50))}, {}, "Set task.axis"),
        ({"a": np.zeros((4, 150, 256, 128))}, {}, "Set task.axis"),
        ({"a": logits(MAPS)}, {"axis": 3}, "Set task.axis"),
        ({"a": logits(MAPS)}, {"threshold": 0.5}, "Leave task.threshold out"),
        ({"a": mask(MAPS)}, {"axis": 0}, "Leave task.axis out"),
        ({"a": mask(MAPS * 0)}, {}, "same class, so nothing could be lost"),
        ({"a": MAPS * 5000}, {}, "which are no classes"),
        ({"a": MAPS.astype(np.float32)}, {}, "cast them to int64"),
        ({"a": logits(MAPS)}, {"output": "b"}, "names no output"),
    ],
)
def test_what_is_unclear_or_wrong_is_refused(
    outputs: Outputs, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(SeqtoError, match=said):
        Segmentation(**keys).metric.losses(outputs, outputs)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((21, 65, 129), 0),
        ((65, 129, 21), 2),
        ((150, 128, 128), 0),
        ((128, 128, 150), 2),
        ((2, 64, 64), 0),
        ((19, 64, 40), 0),
    ],
)
def test_the_axis_of_the_classes_is_found_where_it_is_clear(
    shape: tuple[int, ...], axis: int
) -> None:
    outputs = {"out": DRAW.randn(2, *shape)}
    assert Segmentation().layout(outputs).axis == axis


def test_large_outputs_do_not_fill_the_memory() -> None:
    outputs = {"out": DRAW.rand(1, 150, 300, 400).astype(np.float32)}
    harm = Segmentation().harm(outputs)
    tracemalloc.start()
    harm.per_sample(outputs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # In one go, float64 copies of both outputs alone would be 288 MB.
    assert peak < 1.5e8
