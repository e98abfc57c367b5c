"""The rows that layers multiply their weights with."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, run

from seqto.graph.layers import reduced_axes
from seqto.graph.nodes import initializers
from seqto.graph.patches import as_rows, from_rows, input_of, rows_of
from seqto.types import Model

EVERY = 10_000
DRAW = np.random.default_rng(0)

CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((6, 4, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((8, 1, 3, 3), {"group": 4, "dilations": [2, 1]}),
    ((6, 2, 5, 5), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((6, 4, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ((6, 4, 3, 3), {"auto_pad": "VALID"}),
]


def random(*shape: int) -> np.ndarray:
    return np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32)


def one_node(node: onnx.NodeProto, weight: np.ndarray, shape: list[Any]) -> Model:
    model = build([node], [numpy_helper.from_array(weight, "w")], {"x": shape}, {}, name="one")
    model.proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    return model


def products(model: Model, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows times weight, `[outputs, rows]`, and what the model returns."""
    (node,) = model.proto.graph.node
    constants = initializers(model.proto.graph)
    found = input_of(node, constants)
    assert found is not None
    reading, weight = found
    reduced = reduced_axes(node, weight)
    rows = rows_of(x, reading, EVERY, DRAW)
    weights = as_rows(numpy_helper.to_array(weight), reduced, reading.groups)
    mine = weights @ rows.transpose(0, 2, 1)
    return mine.reshape(-1, mine.shape[-1]), run(model, {"x": x})[0]


@pytest.mark.parametrize(("shape", "options"), CONVOLUTIONS)
def test_patches_times_weight_are_the_convolution(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", **options)
    model = one_node(node, random(*shape), ["N", 4, 9, 10])
    mine, outputs = products(model, random(2, 4, 9, 10))
    wanted = np.moveaxis(outputs, 1, 0).reshape(shape[0], -1)
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


def test_patches_of_a_single_axis() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[2, 1], strides=[3])
    mine, outputs = products(one_node(node, random(5, 3, 4), ["N", 3, 20]), random(2, 3, 20))
    wanted = np.moveaxis(outputs, 1, 0).reshape(5, -1)
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("node", "weight", "shape", "axis"),
    [
        (helper.make_node("MatMul", ["x", "w"], ["y"], "m"), (5, 7), (2, 3, 5), -1),
        (helper.make_node("MatMul", ["w", "x"], ["y"], "m"), (7, 5), (2, 5, 3), -2),
        (helper.make_node("Gemm", ["x", "w"], ["y"], "g", transB=1), (7, 5), (3, 5), -1),
        (helper.make_node("Gemm", ["x", "w"], ["y"], "g", transA=1), (5, 7), (5, 3), -1),
    ],
)
def test_rows_times_weight_are_the_product(
    node: onnx.NodeProto, weight: tuple[int, ...], shape: tuple[int, ...], axis: int
) -> None:
    mine, outputs = products(one_node(node, random(*weight), list(shape)), random(*shape))
    wanted = np.moveaxis(outputs, axis, 0).reshape(7, -1)
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


def test_at_most_so_many_rows_drawn_with_a_seed() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    model = one_node(node, random(6, 4, 3, 3), ["N", 4, 9, 10])
    found = input_of(node, initializers(model.proto.graph))
    assert found is not None
    draws = [
        rows_of(random(1, 4, 9, 10), found[0], 10, np.random.default_rng(seed), None)
        for seed in (1, 1, 2)
    ]
    assert draws[0].shape == (1, 10, 36)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_padding_is_no_row() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "m")
    model = one_node(node, random(5, 7), ["N", 3, 5])
    found = input_of(node, initializers(model.proto.graph))
    assert found is not None
    x, mask = random(2, 3, 5), np.array([[1, 1, 0], [1, 0, 0]])
    rows = rows_of(x, found[0], EVERY, DRAW, mask)
    np.testing.assert_array_equal(rows[0], np.stack([x[0, 0], x[0, 1], x[1, 0]]))


def test_a_weight_in_rows_comes_back_as_it_was() -> None:
    values = random(3, 4, 5, 6)
    for reduced in ((1, 2, 3), (0,), (2,)):
        rows = as_rows(values, reduced, 1)
        np.testing.assert_array_equal(from_rows(rows, reduced, values.shape), values)


def test_what_is_no_sum_over_rows_is_not_read() -> None:
    batched = helper.make_node("MatMul", ["x", "w"], ["y"], "m")
    constants = {"w": numpy_helper.from_array(random(2, 5, 7), "w")}
    assert input_of(batched, constants) is None
    assert input_of(helper.make_node("ConvTranspose", ["x", "w"], ["y"], "t"), constants) is None
