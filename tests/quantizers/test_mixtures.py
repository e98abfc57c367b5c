"""Values of very different sizes in one activation stay in float."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, run, weight
from suite_quantizers import Prepared

from seqto.graph.links import Links
from seqto.graph.prepare import prepare
from seqto.quantizers.mixtures import not_finite, too_mixed
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model, Samples


def boxes_and_scores(size: float = 640.0) -> Model:
    """Return two layers for boxes in pixels and for scores, and both in one output."""
    nodes = [
        helper.make_node("MatMul", ["x", "boxes_w"], ["raw"], "boxes"),
        helper.make_node("Sigmoid", ["raw"], ["share"], "sigmoid"),
        helper.make_node("Mul", ["share", "size"], ["pixels"], "scale"),
        helper.make_node("MatMul", ["x", "scores_w"], ["logits"], "scores"),
        helper.make_node("Sigmoid", ["logits"], ["probabilities"], "sigmoid_2"),
        helper.make_node("Concat", ["pixels", "probabilities"], ["all"], "concat", axis=2),
        helper.make_node("Transpose", ["all"], ["y"], "turn", perm=[0, 2, 1]),
    ]
    weights = [
        *(weight("boxes_w", 16, 4), weight("scores_w", 16, 3)),
        numpy_helper.from_array(np.float32(size), "size"),
    ]
    return build(nodes, weights, {"x": ["N", 8, 16]}, {"y": ["N", 7, 8]}, name="head")


def masked(hidden: float) -> Model:
    """Return scores of two layers to which a mask is added, their softmax, and a layer behind."""
    nodes = [
        helper.make_node("MatMul", ["x", "q_w"], ["q"], "q"),
        helper.make_node("MatMul", ["x", "k_w"], ["k"], "k"),
        helper.make_node("Transpose", ["k"], ["k_t"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k_t"], ["products"], "products"),
        helper.make_node("Greater", ["mask", "half"], ["is_hidden"], "greater"),
        helper.make_node("Where", ["is_hidden", "hidden", "none"], ["penalty"], "where"),
        helper.make_node("Add", ["products", "penalty"], ["masked"], "add"),
        helper.make_node("Softmax", ["masked"], ["shares"], "softmax", axis=-1),
        helper.make_node("MatMul", ["shares", "x"], ["sums"], "sums"),
        helper.make_node("MatMul", ["sums", "out_w"], ["y"], "out"),
    ]
    numbers = {"half": 0.5, "hidden": hidden, "none": 0.0}
    weights = [
        *(weight(f"{name}_w", 8, 8) for name in ("q", "k", "out")),
        *(numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()),
    ]
    inputs = {"x": ["N", 6, 8], "mask": ["N", 1, 6]}
    return build(nodes, weights, inputs, {"y": ["N", 6, 8]}, name="masked")


def prepared(model: Model, unweighted: str = "auto") -> Prepared:
    """Return the model, calibrated on inputs of which a third is hidden."""
    draw = np.random.default_rng(0)
    inputs = {"x": draw.standard_normal((12, 8, 16)).astype(np.float32)}
    if model.name != "head":
        shape = (12, 1, 6) if model.name == "masked" else (12, 6, 1)
        inputs = {
            "x": draw.standard_normal((12, 6, 8)).astype(np.float32),
            "mask": (draw.random(shape) < 0.3).astype(np.float32),
        }
    samples = Samples(inputs, tuple(map(str, range(12))))
    return Prepared(StaticQuantizer(unweighted=unweighted), prepare(model), samples)


def noise(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the noise in relation to the signal."""
    return float(((found - wanted) ** 2).sum() / (wanted**2).sum())


def hidden_words(hidden: float) -> Model:
    """Return a layer, the greatest of its outputs over words that are not hidden, and a layer."""
    nodes = [
        helper.make_node("MatMul", ["x", "in_w"], ["words"], "in"),
        helper.make_node("Mul", ["mask", "hidden"], ["penalty"], "penalty"),
        helper.make_node("Add", ["words", "penalty"], ["shown"], "add"),
        helper.make_node("Transpose", ["shown"], ["rows"], "turn", perm=[0, 2, 1]),
        helper.make_node("MaxPool", ["rows"], ["most"], "most", kernel_shape=[6]),
        helper.make_node("Flatten", ["most"], ["flat"], "flatten"),
        helper.make_node("MatMul", ["flat", "out_w"], ["y"], "out"),
    ]
    weights = [
        *(weight("in_w", 8, 8), weight("out_w", 8, 8)),
        numpy_helper.from_array(np.float32(hidden), "hidden"),
    ]
    inputs = {"x": ["N", 6, 8], "mask": ["N", 6, 1]}
    return build(nodes, weights, inputs, {"y": ["N", 8]}, name="hidden_words")


@pytest.mark.parametrize("hidden", [-1e4, -1e9])
def test_what_is_hidden_before_a_maximum_does_not_swallow_the_rest(hidden: float) -> None:
    subject = prepared(hidden_words(hidden))
    wanted = run(subject.floating, subject.inputs)[0]
    assert 0 < noise(run(subject.excluding(), subject.inputs)[0], wanted) < 0.01


@pytest.mark.parametrize("hidden", [-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf])
def test_a_mask_does_not_swallow_the_scores_it_is_added_to(hidden: float) -> None:
    subject = prepared(masked(hidden))
    wanted = run(subject.floating, subject.inputs)[0]
    assert 0 < noise(run(subject.excluding(), subject.inputs)[0], wanted) < 0.01


def test_all_that_reads_such_an_activation_is_left_except_layers() -> None:
    subject = prepared(masked(-1e9))
    links = Links(subject.model.proto.graph)
    # The products are small beside the mask; the softmax would read both in 256 steps.
    assert too_mixed(links, subject.ranges, subject.names) == ["add", "softmax"]
    head = prepared(boxes_and_scores())
    links = Links(head.model.proto.graph)
    assert too_mixed(links, head.ranges, head.names) == ["concat", "turn"]
    assert too_mixed(links, head.ranges, [*head.names, "turn"]) == ["concat"]


def test_values_of_about_one_size_are_not_too_mixed() -> None:
    head = prepared(boxes_and_scores(size=20.0))
    assert too_mixed(Links(head.model.proto.graph), head.ranges, head.names) == []


def test_an_input_that_is_always_zero_loses_nothing() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], "add")]
    model = build(nodes, [], {"a": ["N"], "b": ["N"]}, {"y": ["N"]})
    links = Links(model.proto.graph)
    ranges = {"a": (-8.0, 8.0), "b": (0.0, 0.0), "y": (-8.0, 8.0)}
    assert too_mixed(links, ranges, ()) == []
    assert too_mixed(links, {**ranges, "b": (0.0, 0.2)}, ()) == ["add"]
    assert too_mixed(links, {**ranges, "b": (5.0, 5.1)}, ()) == []


def test_who_wants_all_in_int8_gets_all_but_what_is_infinite() -> None:
    subject = prepared(hidden_words(-1e4), "int8")
    wanted = run(subject.floating, subject.inputs)[0]
    assert noise(run(subject.excluding(), subject.inputs)[0], wanted) > 0.1
    subject = prepared(masked(-np.inf), "int8")
    assert np.isfinite(run(subject.excluding(), subject.inputs)[0]).all()
    links = Links(subject.model.proto.graph)
    assert {"add", "softmax", "where"} <= set(not_finite(links, subject.ranges, subject.names))
