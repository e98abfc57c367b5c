"""Inputs that have the same value in every inference."""

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx_models import run
from stateful_models import chosen_by_rate, shaped

from seqto.errors import ConfigError
from seqto.graph.constants import with_constants
from seqto.graph.interface import interface_of
from seqto.graph.layers import weight_layers
from seqto.graph.load import input_specs
from seqto.graph.prepare import prepare
from seqto.types import Model

TYPES = {
    "sr": TensorProto.INT64,
    "small": TensorProto.UINT8,
    "flag": TensorProto.BOOL,
    "text": TensorProto.STRING,
}


def model() -> Model:
    """Return a model with inputs of several types and shapes."""
    inputs = {
        **{"x": ["batch", 4], "sr": [], "small": [1], "flag": []},
        **{"scale": ["batch", 2], "text": [], "grid": [2, 3]},
    }
    return shaped(inputs, {"y": ["batch", 4]}, TYPES)


def constant(name: str, value: Any) -> np.ndarray:
    """Return the initializer that a constant becomes."""
    fixed = with_constants(model(), {name: value})
    assert name not in [spec.name for spec in input_specs(fixed)]
    return numpy_helper.to_array(fixed.proto.graph.initializer[0])


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("sr", 16000, np.array(16000, np.int64)),
        ("small", 7, np.array([7], np.uint8)),
        ("small", [7], np.array([7], np.uint8)),
        ("flag", True, np.array(True)),
        ("grid", 2, np.full((2, 3), 2, np.float32)),
        ("grid", [[1, 2, 3], [4, 5, 6.5]], np.array([[1, 2, 3], [4, 5, 6.5]], np.float32)),
        ("scale", [[640, 480]], np.array([[640, 480]], np.float32)),
    ],
)
def test_a_constant_has_the_type_and_shape_of_its_input(
    name: str, value: Any, wanted: np.ndarray
) -> None:
    found = constant(name, value)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("st", 1, "'st' (did you mean 'sr'"),
        ("sr", 1.5, "1.5 for the model input 'sr' int64[], which does not fit: its values are of"),
        ("sr", True, "of type bool"),
        ("sr", [1], "it has the shape [1]"),
        ("sr", "fast", "of type str"),
        ("small", 256, "uint8 goes from 0 to 255"),
        ("flag", 1, "of type int64"),
        ("grid", [[1, 2, 3]], "it has the shape [1, 3]"),
        ("grid", [[1], [2, 3]], "its rows differ in length"),
        ("scale", 3, "it has the shape []"),
        ("text", "a", "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        with_constants(model(), {name: value})


def test_something_has_to_be_left() -> None:
    with pytest.raises(ConfigError, match="only input"):
        with_constants(shaped({"x": [1, 4]}, {"y": [1, 4]}), {"x": 1})


def test_dimensions_of_the_same_name_have_the_same_size() -> None:
    fixed = with_constants(
        shaped({"x": ["batch", 4], "scale": ["batch", 2]}, {"y": ["batch", 4]}),
        {"scale": [[1, 2]]},
    )
    assert [spec.shape for spec in input_specs(fixed)] == [(1, 4)]
    assert interface_of(fixed).fixed_batch == 1


def test_the_original_is_not_changed() -> None:
    original = chosen_by_rate()
    before = original.digest
    assert with_constants(original, {}) is original
    with_constants(original, {"sr": 8000})
    assert onnx.load_from_string(original.to_bytes()) == original.proto
    assert Model("x", original.proto).digest == before


@pytest.mark.parametrize(("rate", "layer"), [(16000, "high_dense"), (8000, "low_dense")])
def test_an_if_on_a_constant_leaves_its_branch(rate: int, layer: str) -> None:
    original = chosen_by_rate()
    prepared = prepare(with_constants(original, {"sr": rate}))
    assert [node.op_type for node in prepared.proto.graph.node] == ["MatMul"]
    assert [each.name for each in weight_layers(prepared, ["MatMul"])] == [layer]
    x = np.random.RandomState(0).randn(5, 4).astype(np.float32)
    wanted = run(original, {"x": x, "sr": np.array(rate)})[0]
    np.testing.assert_allclose(run(prepared, {"x": x})[0], wanted, rtol=1e-6)
