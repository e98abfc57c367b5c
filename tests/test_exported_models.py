"""The models that tests export are valid, and their outputs mean something."""

import numpy as np
import onnx
import pytest
from exported_models import (
    decoder,
    detector,
    patterns,
    prompts,
    recurrent,
    sentence_transformer,
    sentences,
    series,
    shapes,
    states,
    unet,
    vision_transformer,
)
from onnx_models import run
from task_models import EXPORTED, Case


@pytest.mark.parametrize("case", EXPORTED, ids=lambda case: case.name)
def test_models_are_valid_and_the_same_each_time(case: Case) -> None:
    model = case.model()
    onnx.checker.check_model(model.proto, full_check=True)
    assert model.digest == case.model().digest
    (first, *_), (second, *_) = (run(model, each) for each in case.feeds(2))
    assert np.isfinite(first).all() and np.abs(first - second).max() > 1e-3


def test_the_vision_transformer_tells_classes() -> None:
    inputs, classes = patterns()
    assert (run(vision_transformer(), dict(inputs))[0].argmax(1) == classes).mean() > 0.6


def test_sentences_of_a_topic_are_near_each_other() -> None:
    inputs, topics = sentences()
    found = run(sentence_transformer(), dict(inputs))[0]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    likeness = found @ found.T - 2 * np.eye(len(found))
    assert (topics[likeness.argmax(1)] == topics).mean() > 0.8


def test_padding_does_not_change_an_embedding() -> None:
    inputs, _ = sentences(4)
    longer = {name: np.pad(each, ((0, 0), (0, 5))) for name, each in inputs.items()}
    model = sentence_transformer()
    np.testing.assert_allclose(run(model, longer)[0], run(model, dict(inputs))[0], atol=1e-5)


def test_a_decoder_that_continues_is_one_that_read_everything() -> None:
    model, whole = decoder(), prompts(3)
    start, rest = np.split(whole["input_ids"], [7], axis=1)
    _, *presents = run(model, {**whole, "input_ids": start})
    kept = dict(zip([name for name in whole if "past" in name], presents, strict=True))
    continued = run(model, {"input_ids": rest, **kept})[0]
    np.testing.assert_allclose(continued, run(model, dict(whole))[0][:, 7:], atol=1e-4)


def test_the_segmenter_and_the_detector_find_shapes() -> None:
    inputs, classes, boxes = shapes(24)
    found = run(unet(), dict(inputs))[0].argmax(1)
    overlap = [((found == k) & (classes == k)).sum() / (classes == k).sum() for k in (1, 2)]
    assert min(overlap) > 0.5
    corners, scores = run(detector(), dict(inputs))
    there = boxes[..., 4:] > 0
    assert (scores[there] > 0.5).mean() > 0.8 and (scores[~there] > 0.5).mean() < 0.1
    assert (corners[..., 2:] > corners[..., :2]).mean() > 0.95


def test_the_recurrent_network_tells_speeds() -> None:
    inputs, speeds = series()
    found, *_ = run(recurrent(), {**inputs, **states(64)})
    assert np.corrcoef(found[:, -1, 0], speeds)[0, 1] > 0.8
