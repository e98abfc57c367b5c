"""What the outputs of a study's model mean, found before anything is calibrated."""

import numpy as np
import pytest
from onnx import helper
from onnx_models import build, weight

import seqto
from seqto.errors import DatasetError, ModelError
from seqto.types import Model


def noisy() -> Model:
    """Return a layer behind noise, which an input scales, as in models of speech."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], "noise", dtype=1),
        helper.make_node("Mul", ["noise", "scale"], ["scaled"], "scaled"),
        helper.make_node("Add", ["x", "scaled"], ["sum"], "sum"),
        helper.make_node("MatMul", ["sum", "w"], ["y"], "fc"),
    ]
    inputs: dict[str, list[str | int | None]] = {"x": ["N", 6], "scale": [1]}
    return build(nodes, [weight("w", 6, 4)], inputs, {"y": ["N", 4]})


def ranked(scale: float) -> list[str]:
    """Return the layers' names of a ranking."""
    samples = np.random.RandomState(0).randn(40, 6).astype(np.float32)
    constant = f"dataset.constants={{scale: [{scale}]}}"
    frame = seqto.rank(noisy().proto, samples, overrides=["task=regression", constant])
    return list(frame.index) or list(frame.columns)


def test_a_model_that_draws_random_numbers_is_refused() -> None:
    with pytest.raises(ModelError, match="random numbers, so that its output 'y'.*constants"):
        ranked(0.5)


def test_a_float_model_that_is_not_finite_is_refused_with_a_remedy() -> None:
    with pytest.raises(ModelError, match="'y' is not finite.* in float already.*-10000 instead"):
        ranked(float("inf"))


def test_random_numbers_that_count_for_nothing_are_no_reason() -> None:
    assert ranked(0.0)


def test_labels_of_a_call_are_not_left_out_by_a_config() -> None:
    samples = np.random.RandomState(0).randn(40, 6).astype(np.float32)
    fixed = "dataset.constants={scale: [0.0]}"
    words = {"task": "classification", "overrides": [fixed], "tracking": None, "progress": False}
    with pytest.raises(DatasetError, match="a label is 'cat'") as caught:
        seqto.tune(noisy().proto, samples, labels=["cat"] * 40, **words)
    assert "dataset.labels" not in str(caught.value)
