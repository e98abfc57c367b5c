"""What outputs probably mean."""

import pickle

import numpy as np
import pytest

from seqto.errors import ModelError
from seqto.tasks.auto import AutoTask, Guess
from seqto.types import Outputs, Targets, TensorSpec

IMAGE = TensorSpec("data", (None, 3, 224, 224), "float32")
BYTES = TensorSpec("pixels", (None, 224, 224, 3), "uint8")
TEXT = TensorSpec("input_ids", (None, None), "int64")
SOUND = TensorSpec("wave", (None, 16000), "float32")
DRAW = np.random.RandomState(0)


def floats(*shape: int) -> np.ndarray:
    return DRAW.randn(8, *shape).astype(np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits)
    return powers / powers.sum(axis=-1, keepdims=True)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def guess(
    array: np.ndarray | tuple[np.ndarray, ...],
    given: TensorSpec = IMAGE,
    name: str = "out",
    targets: Targets | None = None,
) -> Guess:
    return AutoTask().of({name: array}, [given], targets)


@pytest.mark.parametrize(
    ("array", "given", "name", "task"),
    [
        # ResNet of the model zoo, and a head that pooling left axes at.
        (floats(1000), IMAGE, "resnetv17_dense0_fwd", "classification"),
        (floats(1000, 1, 1), IMAGE, "fire", "classification"),
        (floats(10), BYTES, "out", "classification"),
        (floats(2), IMAGE, "out", "classification"),
        # Probabilities are classes, whatever goes in and however many.
        (softmax(floats(4)), IMAGE, "out", "classification"),
        (softmax(floats(214)), TEXT, "target_label", "classification"),
        (softmax(floats(512)), SOUND, "out", "classification"),
        # Names.
        (floats(5), TEXT, "logits", "classification"),
        (floats(4), TEXT, "logits", "classification"),
        (floats(521), SOUND, "class_scores", "classification"),
        (floats(384), TEXT, "sentence_embedding", "embedding"),
        (floats(768), TEXT, "pooler_output", "embedding"),
        (floats(100), IMAGE, "features", "embedding"),
        # Values.
        (unit(floats(384)), TEXT, "out", "embedding"),
        (unit(floats(512)), IMAGE, "683", "embedding"),
        (floats(3), TEXT, "out", "classification"),
        (softmax(floats(7, 30)), TEXT, "out", "tokens"),
        (floats(7, 30), TEXT, "logits", "tokens"),
    ],
)
def test_clear_cases(array: np.ndarray, given: TensorSpec, name: str, task: str) -> None:
    found = guess(array, given, name)
    assert found.task.name == task
    assert found.reason


@pytest.mark.parametrize(
    ("array", "given", "name", "words"),
    [
        (floats(), IMAGE, "out", "task=binary .* task=regression"),
        (floats(1), SOUND, "prob", "task=binary .* task=regression"),
        (floats(4), IMAGE, "out", "task=classification .* task=regression"),
        (floats(4), IMAGE, "boxes", "task=detection"),
        (floats(10), IMAGE, "landmarks", "task=detection, or task=regression for coordinates"),
        (unit(floats(3)), IMAGE, "out", "task=regression"),
        # An embedding of a face, and one of a text, which nothing tells.
        (floats(512), IMAGE, "683", "task=embedding"),
        (floats(384), TEXT, "out", "task=classification .* task=embedding"),
        (floats(6), SOUND, "out", "task=classification .* task=regression"),
        (floats(7, 30), TEXT, "out", "task=tokens .* task=embedding task.pooling=mean"),
        (floats(7, 384), TEXT, "last_hidden_state", "task.pooling=mean"),
        # Speech or handwriting by CTC: tokens that move by a position lose nothing.
        (softmax(floats(7, 30)), SOUND, "out", "task=tokens .* task=text task.decoding=ctc"),
        (floats(84, 840), IMAGE, "output0", "task=detection"),
        (floats(64, 64), IMAGE, "mask", "task=segmentation"),
        (floats(21, 64, 64), IMAGE, "out", "task=segmentation .* task=regression"),
        (floats(1, 160, 160), IMAGE, "sigmoid_0.tmp_0", "task=segmentation"),
        (floats(1, 16000), SOUND, "wave_probs_embed", "task=embedding"),
        (floats(2, 16000, 1), SOUND, "out", "task=audio"),
        (np.zeros((8, 5), np.int64), TEXT, "ids", "whole numbers .int64.*task=text"),
        (np.zeros((8, 5), bool), IMAGE, "mask", "yes and no.*'model.outputs="),
        (np.full((8, 2), "cat"), IMAGE, "label", "of texts.*'model.outputs="),
        ((np.zeros((3, 6)), np.zeros((0, 6))), IMAGE, "dets", "task=detection"),
        ((np.zeros(3), np.zeros(5)), SOUND, "out", "task=regression"),
        # Users, items and columns of a table are no texts.
        (floats(5), TensorSpec("user_ids", (None, 1), "int64"), "out", "task=regression"),
        (floats(5), TensorSpec("item_id", (None,), "int64"), "out", "task=regression"),
        (floats(5), TensorSpec("X", (None, 10), "int64"), "out", "task=regression"),
        # Landmarks and ages are never negative, and of tags several hold.
        (100 * unit(np.abs(floats(136))), IMAGE, "fc1", "values from .* task=regression"),
        (np.abs(floats(3)), TEXT, "out", "task=regression"),
        (1 / (1 + np.exp(floats(40))), IMAGE, "probs", "tags of which several hold"),
        (np.zeros((8, 32, 32), np.int64), IMAGE, "argmax", "say task=segmentation"),
        (np.zeros(8, np.int64), SOUND, "label", "export the model with scores"),
    ],
)
def test_unclear_cases_say_what_was_seen_and_what_to_say(
    array: np.ndarray, given: TensorSpec, name: str, words: str
) -> None:
    with pytest.raises(ModelError, match=f"not clear what .*'{name}' has the shape .*{words}"):
        guess(array, given, name)


def test_several_outputs_are_unclear() -> None:
    outputs: Outputs = {"boxes": floats(10, 4), "scores": floats(10)}
    said = r"2 outputs: 'boxes' \[10, 4\], 'scores' \[10\].*task=.*'model.outputs=\[boxes\]'"
    with pytest.raises(ModelError, match=said):
        AutoTask().of(outputs, [IMAGE])


def test_of_several_outputs_scores_are_proposed_before_labels() -> None:
    outputs: Outputs = {"label": np.zeros(8, np.int64), "probabilities": floats(3)}
    with pytest.raises(ModelError, match=r"'model.outputs=\[probabilities\]'"):
        AutoTask().of(outputs, [SOUND])


def test_targets_settle_classes() -> None:
    assert guess(floats(4), targets=[0, 3] * 4).task.name == "classification"
    assert guess(floats(100), TEXT, targets=np.arange(8)).task.name == "classification"
    assert guess(floats(1), targets=[0, 1] * 4).task.name == "binary"
    assert guess(floats(1), name="prob", targets=[0] * 8).task.name == "binary"
    with pytest.raises(ModelError, match="task=binary"):
        guess(floats(1), targets=[0] * 8)


@pytest.mark.parametrize("targets", [[0.5] * 8, ["cat"] * 8, [4] * 8, [-1] * 8, [[0, 1]] * 8, [0]])
def test_other_targets_settle_nothing(targets: Targets) -> None:
    with pytest.raises(ModelError, match="not clear"):
        guess(floats(4), targets=targets)


def test_of_a_long_row_a_target_has_to_be_where_the_highest_value_is() -> None:
    rows = floats(384)
    rows[:, 9] = 0
    with pytest.raises(ModelError, match="task=embedding"):
        guess(rows, IMAGE, targets=[9] * 8)
    rows[3, 9] = 10
    assert guess(rows, IMAGE, targets=[9] * 8).task.name == "classification"


def test_people_are_no_classes_of_an_embedding() -> None:
    # Faces: targets are persons, below the number of values.
    assert guess(unit(floats(512)), targets=np.arange(8)).task.name == "embedding"


@pytest.mark.parametrize("axis", [0, 2])
def test_probabilities_of_pixels_are_masks(axis: int) -> None:
    maps = np.moveaxis(softmax(floats(16, 16, 3)), -1, axis + 1)
    found = guess(maps)
    assert (found.task.name, getattr(found.task, "axis", None)) == ("segmentation", axis)
    outputs = {"out": maps}
    assert not np.any(found.task.metric.losses(outputs, outputs))
    with pytest.raises(ModelError, match="task=segmentation .* task=regression"):
        guess(maps, SOUND)


def test_texts_of_several_lengths_have_tokens() -> None:
    ragged = tuple(DRAW.randn(count, 9).astype(np.float32) for count in (1, 4, 9))
    assert guess(ragged, TEXT, "logits").task.name == "tokens"


def test_a_single_sample_is_enough() -> None:
    assert guess(floats(10)[:1]).task.name == "classification"
    assert guess(floats(7, 30)[:1], TEXT, "logits").task.name == "tokens"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_does_not_count(value: float) -> None:
    rows = softmax(floats(4))
    rows[0] = value
    assert guess(rows).task.name == "classification"
    with pytest.raises(ModelError, match="not clear"):
        guess(np.full((8, 4), value))


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(AutoTask())) == AutoTask()
