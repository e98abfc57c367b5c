"""Reshapes that only keep the batch size have constant shapes, and no others."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, op_types, run

from seqto.graph.batch_sizes import keep_batch_sizes
from seqto.types import Model


def flattening(index: int = 0, asked: str = "x", first: str = "N", start: int = 0) -> Model:
    """Return a model that flattens `x` to what it asks `asked` for, and the rest."""
    nodes = [
        helper.make_node("Shape", [asked], ["shape"], "shape", start=start),
        helper.make_node("Gather", ["shape", "index"], ["size"], "gather"),
        helper.make_node("Unsqueeze", ["size", "axis"], ["sizes"], "unsqueeze"),
        helper.make_node("Concat", ["sizes", "rest"], ["whole"], "concat", axis=0),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Reshape", ["r", "whole"], ["y"], "reshape"),
    ]
    constants = {"index": np.array(index), "axis": np.array([0]), "rest": np.array([-1])}
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    inputs = {"x": ["N", 3, 4], "other": [first, 3, 4]}
    model = build(nodes, weights, inputs, {"y": [None, None]})
    return Model(model.name, onnx.shape_inference.infer_shapes(model.proto))


def changed(model: Model) -> Model:
    proto = model.copy_proto()
    keep_batch_sizes(proto.graph)
    onnx.checker.check_model(proto, full_check=True)
    return Model(model.name, proto)


@pytest.mark.parametrize("asked", ["x", "r", "other"])
def test_the_batch_size_is_kept_without_asking_for_it(asked: str) -> None:
    model = flattening(asked=asked)
    if asked == "r":
        model.proto.graph.node.insert(0, model.proto.graph.node.pop(4))
    found = changed(model)
    assert op_types(found) == ["Relu", "Reshape"]
    assert len(found.proto.graph.initializer) == 1
    for count in (1, 5):
        given = {name: np.random.randn(count, 3, 4).astype(np.float32) for name in ("x", "other")}
        np.testing.assert_array_equal(run(found, given)[0], run(model, given)[0])


@pytest.mark.parametrize(
    "model",
    [flattening(index=1), flattening(asked="other", first="M"), flattening(start=1)],
    ids=["another size", "the size of another batch", "a part of a shape"],
)
def test_other_sizes_are_left_alone(model: Model) -> None:
    assert changed(model).proto == model.proto
