"""Weights stored in fewer bits."""

import itertools
import math

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, feeds, gemm_model, op_types, residual, run, weight
from quantizable_models import mobile, shared_weight, wide
from sequence_models import reader, recurrent, tied

from seqto.errors import LayerError, QuantizationError
from seqto.graph.coded_sizes import coded_sizes
from seqto.graph.grids import on_grid
from seqto.graph.inner import with_outputs
from seqto.graph.layers import weight_layers
from seqto.graph.prepare import prepare
from seqto.graph.weights import (
    at_opset,
    own_weights,
    store,
    store_float16,
    store_int4,
    store_int8,
    stored_bytes,
)
from seqto.types import CODED_STEPS, FLOAT16, FLOAT32, INT4, INT8, INT16, Layer, Model

STORES = {
    FLOAT16: store_float16,
    INT8: store_int8,
    INT4: lambda model, layers: store_int4(model, layers, 32),
}
OPERATIONS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
EVERY_PRECISION = pytest.mark.parametrize("precision", STORES)


# The definition, value by value, for a list of those that share a scale.


def half_at_least(value: float) -> float:
    """Return the smallest float16 that is not below."""
    short = np.float16(value)
    return float(short if short >= np.float32(value) else np.nextafter(short, np.float16(np.inf)))


def int8_values(values: list[float]) -> list[float]:
    scale = half_at_least(np.float32(max(map(abs, values))) / np.float32(127)) or 1.0
    return [max(-127, min(127, round(value / scale))) * scale for value in values]


def int4_values(values: list[float]) -> list[float]:
    extreme = max(values, key=lambda value: (abs(value), value))
    scale = half_at_least(np.float32(abs(extreme)) / np.float32(8)) or 1.0
    scale = -scale if extreme >= 0 else scale
    return [max(-8, min(7, round(value / scale))) * scale for value in values]


def int4_row(values: list[float], block: int) -> list[float]:
    """Return what an output sums over, in blocks of one length."""
    count = math.ceil(len(values) / block)
    length = math.ceil(len(values) / count)
    blocks = [values[start : start + length] for start in range(0, len(values), length)]
    return [value for each in blocks for value in int4_values(each)]


def simulated(matrix: np.ndarray, precision: str, block: int = 32) -> np.ndarray:
    """Return a weight as it is after it was stored; rows are outputs."""
    if precision == FLOAT16:
        return matrix.astype(np.float16).astype(np.float32)
    rows = [
        int8_values(row) if precision == INT8 else int4_row(row, block) for row in matrix.tolist()
    ]
    return np.array(rows, np.float32).reshape(matrix.shape)


def read_by(model: Model, layer: str, at: int = 1) -> np.ndarray:
    """Return the weight that a layer gets to see."""
    node = next(each for each in model.proto.graph.node if each.name == layer)
    name = node.input[at]
    for each in model.proto.graph.initializer:
        if each.name == name:
            return numpy_helper.to_array(each)
    tapped = with_outputs(model, [name])
    outputs = [each.name for each in tapped.proto.graph.output]
    return run(tapped, feeds(model))[outputs.index(name)]


# Conv, depthwise Conv and Gemm, with pieces of blocks and without.


def small_net() -> Model:
    """Return Conv (5 x 5 x 3 values an output), depthwise Conv, pool and Gemm (40 values)."""
    nodes = [
        helper.make_node("Conv", ["x", "stem_w", "stem_b"], ["a"], "stem"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "deep_w"], ["c"], "deep", group=40),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], "pool"),
        helper.make_node("Flatten", ["d"], ["e"], "flatten"),
        helper.make_node("Gemm", ["e", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    weights = [
        *(weight("stem_w", 40, 3, 5, 5), weight("stem_b", 40), weight("deep_w", 40, 1, 3, 3)),
        *(weight("head_w", 6, 40), weight("head_b", 6)),
    ]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 6]}, name="small_net")


def small_net_in_numpy(
    weights: dict[str, np.ndarray], biases: dict[str, np.ndarray], pixels: np.ndarray
) -> np.ndarray:
    """Return the scores of `small_net`."""
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (5, 5), axis=(2, 3))
    stem = np.einsum("ncijkl,ockl->noij", windows, weights["stem_w"])
    stem = np.maximum(stem + biases["stem_b"][:, None, None], 0)
    windows = np.lib.stride_tricks.sliding_window_view(stem, (3, 3), axis=(2, 3))
    deep = np.einsum("ncijkl,ckl->ncij", windows, weights["deep_w"][:, 0])
    return deep.mean(axis=(2, 3)) @ weights["head_w"].T + biases["head_b"]


@pytest.mark.parametrize(
    "chosen",
    [
        *({"stem": each, "deep": each, "head": each} for each in STORES),
        {"stem": INT4, "deep": INT8, "head": FLOAT16},
        {"stem": FLOAT32, "deep": INT4, "head": INT8},
    ],
)
def test_outputs_are_those_of_a_simulation_in_numpy(chosen: dict[str, str]) -> None:
    model = small_net()
    constants = {each.name: numpy_helper.to_array(each) for each in model.proto.graph.initializer}
    weights, biases = {}, dict(constants)
    for layer, precision in chosen.items():
        values = constants[f"{layer}_w"]
        rows = values.reshape(values.shape[0], -1)
        weights[f"{layer}_w"] = (
            values if precision == FLOAT32 else simulated(rows, precision).reshape(values.shape)
        )
        if precision != FLOAT32 and f"{layer}_b" in biases:
            biases[f"{layer}_b"] = biases[f"{layer}_b"].astype(np.float16).astype(np.float32)
    inputs = feeds(model, count=4)
    wanted = small_net_in_numpy(weights, biases, inputs["x"])
    stored = store(model, chosen)
    for optimized in (False, True):
        found = run(stored, inputs, optimized=optimized)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    # The simulation tells one precision from another.
    plain = small_net_in_numpy(constants, constants, inputs["x"])
    assert np.abs(plain - wanted).max() > 1e-4


# Every kind of layer.


def one_layer(kind: str) -> tuple[Model, int]:
    """Return a model of a single `layer`, and where its weight is among the inputs."""
    if kind == "Conv":
        node = helper.make_node("Conv", ["x", "w"], ["y"], "layer")
        shapes = (7, 5, 3, 3), ["N", 5, 6, 6], ["N", 7, 4, 4]
    elif kind == "ConvTranspose":
        node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "layer")
        shapes = (70, 5, 3, 3), ["N", 70, 4, 4], ["N", 5, 6, 6]
    elif kind == "Gemm":
        node = helper.make_node("Gemm", ["x", "w"], ["y"], "layer")
        shapes = (100, 7), ["N", 100], ["N", 7]
    elif kind == "Gemm transposed":
        node = helper.make_node("Gemm", ["x", "w"], ["y"], "layer", transB=1)
        shapes = (7, 100), ["N", 100], ["N", 7]
    elif kind == "MatMul":
        node = helper.make_node("MatMul", ["x", "w"], ["y"], "layer")
        shapes = (64, 7), ["N", 64], ["N", 7]
    elif kind == "MatMul on the left":
        node = helper.make_node("MatMul", ["w", "x"], ["y"], "layer")
        shapes = (7, 33), ["N", 33, 4], ["N", 7, 4]
    elif kind == "MatMul of many":
        node = helper.make_node("MatMul", ["x", "w"], ["y"], "layer")
        shapes = (3, 65, 7), ["N", 3, 2, 65], ["N", 3, 2, 7]
    else:
        node = helper.make_node("MatMul", ["x", "w"], ["y"], "layer")
        shapes = (70,), ["N", 70], ["N"]
    tensor = weight("w", *shapes[0])
    return build([node], [tensor], {"x": shapes[1]}, {"y": shapes[2]}), list(node.input).index("w")


KINDS = [
    *("Conv", "ConvTranspose", "Gemm", "Gemm transposed"),
    *("MatMul", "MatMul on the left", "MatMul of many", "MatMul of a vector"),
]


def expected(values: np.ndarray, kind: str, precision: str) -> np.ndarray:
    """Return the weight of `one_layer` after it was stored."""
    if kind in ("Conv", "Gemm transposed", "MatMul on the left"):
        return simulated(values.reshape(values.shape[0], -1), precision).reshape(values.shape)
    if kind == "ConvTranspose":
        rows = values.swapaxes(0, 1)
        return simulated(rows.reshape(5, -1), precision).reshape(rows.shape).swapaxes(0, 1)
    if kind == "MatMul of many":
        return np.stack([simulated(each.T, precision).T for each in values])
    rows = values.reshape(values.shape[0], -1).T
    return simulated(rows, precision).T.reshape(values.shape)


@pytest.mark.parametrize("kind", KINDS)
@EVERY_PRECISION
def test_weights_of_every_kind_of_layer(kind: str, precision: str) -> None:
    model, at = one_layer(kind)
    before = model.to_bytes()
    stored = STORES[precision](model, ["layer"])
    assert model.to_bytes() == before
    onnx.checker.check_model(stored.proto, full_check=True)
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    wanted = expected(values, kind, precision)
    found = read_by(stored, "layer", at)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
    # No value is further off than half a step, or a step where 8 would be needed.
    assert 0 < np.abs(wanted - values).max() < np.abs(values).max() / 7
    inputs = feeds(model)
    np.testing.assert_allclose(
        run(stored, inputs, optimized=True)[0], run(stored, inputs)[0], rtol=1e-4, atol=1e-5
    )


@EVERY_PRECISION
def test_unpacking_is_done_when_a_session_is_made(precision: str, tmp_path: object) -> None:
    stored = STORES[precision](small_net(), ["stem", "deep", "head"])
    options = onnxruntime.SessionOptions()
    # Only so far that the result is still ONNX.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = f"{tmp_path}/optimized.onnx"
    onnxruntime.InferenceSession(stored.to_bytes(), options, providers=["CPUExecutionProvider"])
    optimized = Model("optimized", onnx.load(options.optimized_model_filepath))
    assert {"Cast", "Mul", "Reshape", "Slice"} & set(op_types(optimized)) == set()
    assert "Cast" in op_types(stored)


def test_files_shrink_as_promised() -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)]
    model = build(nodes, [weight("w", 256, 1024)], {"x": ["N", 1024]}, {"y": ["N", 256]})
    whole = len(model.to_bytes())
    sizes = {each: len(STORES[each](model, ["fc"]).to_bytes()) for each in STORES}
    assert sizes[FLOAT16] == pytest.approx(whole / 2, rel=0.01)
    assert sizes[INT8] == pytest.approx(whole / 4, rel=0.01)
    # A scale of two bytes for each 32 values.
    assert sizes[INT4] == pytest.approx(whole * (1 / 8 + 2 / 128), rel=0.01)
    assert len(store_int4(model, ["fc"], 128).to_bytes()) == pytest.approx(
        whole * (1 / 8 + 2 / 512), rel=0.01
    )


@EVERY_PRECISION
def test_planned_bytes_are_those_of_the_file(precision: str) -> None:
    model = prepare(mobile(blocks=2))
    layers = weight_layers(model, OPERATIONS)
    for layer in layers:
        grown = len(STORES[precision](model, [layer.name]).to_bytes()) - len(model.to_bytes())
        planned = stored_bytes(layer, precision) - stored_bytes(layer, FLOAT32)
        # Names and nodes are most of it here.
        assert abs(grown - planned) < 250


def test_planned_bytes_follow_the_definition() -> None:
    depthwise = Layer("deep", "Conv", 32 * 9 * 4, (32, 9))
    rest = stored_bytes(depthwise, INT4) - 32 * (5 + 2)
    assert stored_bytes(depthwise, INT4, 4) == 32 * (5 + 3 * 2) + rest
    assert stored_bytes(depthwise, FLOAT32) == depthwise.weight_bytes
    # Their scales have 32 bits.
    assert stored_bytes(depthwise, INT16) - stored_bytes(depthwise, INT8) == 32 * (9 + 2)
    odd = Layer("odd", "Gemm", 10 * 33 * 4, (10, 33))
    assert stored_bytes(odd, INT4) == 10 * (17 + 2 * 2) + rest


# Blocks.


@pytest.mark.parametrize("block", [1, 3, 16, 25, 32, 37, 74, 75, 1000])
def test_blocks_of_any_size(block: int) -> None:
    model = small_net()
    stored = store_int4(model, ["stem"], block)
    onnx.checker.check_model(stored.proto, full_check=True)
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    wanted = simulated(values.reshape(40, -1), INT4, block).reshape(values.shape)
    np.testing.assert_allclose(read_by(stored, "stem"), wanted, rtol=1e-6, atol=1e-7)


def test_few_values_are_one_block_without_a_reshape() -> None:
    stored = store_int4(small_net(), ["deep"], 32)
    scale = next(each for each in stored.proto.graph.initializer if each.name.endswith("_scale"))
    assert list(scale.dims) == [40, 1, 1, 1]
    assert op_types(stored).count("Reshape") == 0


# Values that are hard to store.


def with_stem(values: np.ndarray) -> Model:
    """Return `small_net` with this weight."""
    model = small_net()
    model.proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "stem_w"))
    return model


@pytest.mark.parametrize("largest", [65519.0, 65504.0])
def test_what_float16_just_holds_is_stored(largest: float) -> None:
    values = np.zeros((40, 3, 5, 5), np.float32)
    values[0, 0, 0, 0] = -largest
    found = read_by(store_float16(with_stem(values), ["stem"]), "stem")
    assert found.min() == -65504


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [65520.0, -1e6, np.inf])
def test_what_float16_does_not_hold_is_an_error(wrong: float) -> None:
    values = np.zeros((40, 3, 5, 5), np.float32)
    values[3, 1] = wrong
    with pytest.raises(QuantizationError, match="'stem_w' has values beyond 65504.*float16"):
        store_float16(with_stem(values), ["stem"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("precision", [INT8, INT4])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1e4, 1e9])
def test_weights_of_any_size_keep_their_digits(precision: str, size: float) -> None:
    values = numpy_helper.to_array(weight("stem_w", 40, 3, 5, 5)) * np.float32(size)
    found = read_by(STORES[precision](with_stem(values), ["stem"]), "stem")
    error = np.abs(found - values).max() / np.abs(values).max()
    assert error < (0.005 if precision == INT8 else 0.13)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("precision", [INT8, INT4])
def test_channels_of_zeros_and_of_next_to_nothing(precision: str) -> None:
    values = numpy_helper.to_array(weight("stem_w", 40, 3, 5, 5)).copy()
    values[0] = 0
    values[1] *= 1e-8
    found = read_by(STORES[precision](with_stem(values), ["stem"]), "stem")
    assert not found[0].any()
    assert np.abs(found[1] - values[1]).max() < 1e-7
    assert not read_by(STORES[precision](with_stem(values * 0), ["stem"]), "stem").any()


# Weights that several read.


@pytest.mark.parametrize(
    "chosen",
    [
        {"one": INT4},
        {"two": FLOAT16},
        {"one": INT4, "two": INT4},
        {"one": INT8, "two": FLOAT16},
    ],
)
def test_layers_that_share_a_weight_get_what_they_ask_for(chosen: dict[str, str]) -> None:
    model = shared_weight()
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    stored = store(model, chosen)
    onnx.checker.check_model(stored.proto, full_check=True)
    for layer in ("one", "two"):
        rows, precision = values[:, :, 0, 0], chosen.get(layer, FLOAT32)
        wanted = rows if precision == FLOAT32 else simulated(rows, precision)
        np.testing.assert_allclose(read_by(stored, layer)[:, :, 0, 0], wanted, rtol=1e-6)
    held = [each.data_type for each in stored.proto.graph.initializer if each.dims[0] == 4]
    # Once for both where they agree, and as float where one still reads it so.
    assert held.count(TensorProto.INT4) == (INT4 in chosen.values())
    names = {each.name for each in stored.proto.graph.initializer}
    assert ("w" in names) == (len(chosen) == 1)


def test_a_weight_that_is_read_both_ways() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "right"),
        helper.make_node("MatMul", ["w", "a"], ["y"], "left"),
    ]
    shape = ["N", 40, 40]
    model = build(nodes, [weight("w", 40, 40)], {"x": shape}, {"y": shape})
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    stored = store_int4(model, ["right", "left"], 32)
    for layer, at, wanted in (
        ("right", 1, simulated(values.T, INT4).T),
        ("left", 0, simulated(values, INT4)),
    ):
        np.testing.assert_allclose(read_by(stored, layer, at), wanted, rtol=1e-6)


@EVERY_PRECISION
def test_who_else_reads_the_weight_still_reads_float(precision: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("ReduceMean", ["w"], ["m"], "mean", keepdims=0),
        helper.make_node("Add", ["a", "m"], ["y"], "add"),
    ]
    shape = ["N", 4, 8, 8]
    model = build(nodes, [weight("w", 4, 4, 1, 1)], {"x": shape}, {"y": shape})
    stored = STORES[precision](model, ["conv"])
    onnx.checker.check_model(stored.proto, full_check=True)
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    mean = with_outputs(stored, ["m"])
    np.testing.assert_allclose(run(mean, feeds(model))[1], values.mean(), rtol=1e-5)


def test_names_that_are_taken_are_not_taken_again() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Conv", ["a", "w_int8_1"], ["y"], "two"),
    ]
    shape = ["N", 4, 8, 8]
    weights = [weight("w", 4, 4, 1, 1), weight("w_int8_1", 4, 4, 1, 1)]
    model = build(nodes, weights, {"x": shape}, {"y": shape})
    stored = store_int8(model, ["one"])
    onnx.checker.check_model(stored.proto, full_check=True)
    np.testing.assert_array_equal(read_by(stored, "two"), numpy_helper.to_array(weights[1]))


def test_own_weights_are_copies_of_what_others_read() -> None:
    proto = shared_weight().proto
    own_weights(proto, ["two"])
    assert [node.input[1] for node in proto.graph.node if node.op_type == "Conv"] == ["w", "w_own"]
    first, second = map(numpy_helper.to_array, proto.graph.initializer)
    np.testing.assert_array_equal(first, second)
    # Those who share it only with each other go on doing so.
    proto = shared_weight().proto
    own_weights(proto, ["one", "two"])
    assert len(proto.graph.initializer) == 1


# Models of other types and opsets.


@pytest.mark.parametrize("precision", [INT8, INT4])
def test_weights_that_were_float16_are_unpacked_to_it(precision: str) -> None:
    model = gemm_model(transB=1)
    for each in model.proto.graph.initializer:
        each.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(each).astype(np.float16), each.name)
        )
    for each in (*model.proto.graph.input, *model.proto.graph.output):
        each.type.tensor_type.elem_type = TensorProto.FLOAT16
    stored = STORES[precision](model, ["fc"])
    onnx.checker.check_model(stored.proto, full_check=True)
    found = read_by(stored, "fc")
    assert found.dtype == np.float16
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    wanted = simulated(values.astype(np.float32), precision)
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
    assert store_float16(model, ["fc"]).to_bytes() == model.to_bytes()


def test_int4_raises_the_opset_and_others_do_not() -> None:
    model = prepare(residual())
    assert store_int8(model, ["left"]).proto.opset_import == model.proto.opset_import
    stored = store_int4(model, ["left"], 32)
    assert [(each.domain, each.version) for each in stored.proto.opset_import] == [("", 21)]
    assert stored.proto.ir_version >= 10
    later = at_opset(model, 22)
    assert store_int4(later, ["left"], 32).proto.opset_import == later.proto.opset_import


def test_a_model_that_cannot_be_converted_says_so() -> None:
    node = helper.make_node("Upsample", ["x", "scales"], ["a"], "up")
    conv = helper.make_node("Conv", ["a", "w"], ["y"], "conv")
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    weights = [scales, weight("w", 4, 3, 1, 1)]
    shapes = {"x": ["N", 3, 8, 8]}, {"y": ["N", 4, 16, 16]}
    model = build([node, conv], weights, *shapes, opset=9)
    model.proto.graph.node[0].op_type = "NoSuchOperation"
    with pytest.raises(QuantizationError, match="from opset 9 to 21.*int4, int16 and coded need"):
        store_int4(model, ["conv"], 32)


# Mistakes.


def test_unknown_layer_gives_the_nearest() -> None:
    with pytest.raises(LayerError, match="'lfet' .did you mean 'left'"):
        store_int8(residual(), ["stem", "lfet"])


def test_node_without_weight_is_no_layer() -> None:
    with pytest.raises(LayerError, match="'add'"):
        store_float16(residual(), ["add"])


def test_precision_that_weights_do_not_have_is_refused() -> None:
    with pytest.raises(
        QuantizationError, match="int7: choose from coded .*, int4, int8, int16, float16"
    ):
        store(residual(), {"left": "int7"})


def test_no_layers_is_the_same_model() -> None:
    model = residual()
    assert store(model, {}).to_bytes() == store(model, {"left": FLOAT32}).to_bytes()
    assert store(model, {}).to_bytes() == model.to_bytes()


def test_a_bias_that_float16_cannot_hold_stays_as_it_is() -> None:
    model = small_net()
    (bias,) = (each for each in model.proto.graph.initializer if each.name == "head_b")
    bias.CopyFrom(numpy_helper.from_array(np.full(6, 1e6, np.float32), "head_b"))
    stored = store(model, {"stem": INT8, "head": INT8})
    types = {each.name: each.data_type for each in stored.proto.graph.initializer}
    assert types["head_b"] == TensorProto.FLOAT
    assert types["stem_b_float16"] == TensorProto.FLOAT16 and "stem_b" not in types


# Coded weights.

HALF_STEP = "coded_0.5"

SUMMED = {
    **{"Conv": (1, 2, 3), "ConvTranspose": (0, 2, 3), "Gemm": (0,), "Gemm transposed": (1,)},
    **{"MatMul": (0,), "MatMul on the left": (1,), "MatMul of many": (1,)},
    "MatMul of a vector": (0,),
}


def coded(model: Model, *layers: str) -> Model:
    """Return the model with these layers coded."""
    found = store(model, dict.fromkeys(layers, HALF_STEP))
    onnx.checker.check_model(found.proto, full_check=True)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_can_be_coded(kind: str) -> None:
    model, at = one_layer(kind)
    before = model.to_bytes()
    found = coded(model, "layer")
    assert model.to_bytes() == before
    values = numpy_helper.to_array(model.proto.graph.initializer[0])
    wanted = on_grid(values, SUMMED[kind], 0.5).values
    np.testing.assert_array_equal(read_by(found, "layer", at), wanted)
    inputs = feeds(model)
    np.testing.assert_allclose(
        run(found, inputs, optimized=True)[0], run(found, inputs)[0], rtol=1e-4, atol=1e-5
    )


def test_coded_and_other_layers_in_one_model() -> None:
    model = small_net()
    found = store(model, {"stem": HALF_STEP, "deep": INT8, "head": HALF_STEP})
    for layer, summed in {"stem": (1, 2, 3), "head": (1,)}.items():
        values = read_by(model, layer)
        np.testing.assert_array_equal(read_by(found, layer), on_grid(values, summed, 0.5).values)
    np.testing.assert_array_equal(
        read_by(found, "deep"), read_by(store_int8(model, ["deep"]), "deep")
    )
    bias = read_by(model, "stem", 2)
    np.testing.assert_array_equal(read_by(found, "stem", 2), bias.astype(np.float16))


def test_a_coded_table_is_decoded_as_a_whole() -> None:
    model = prepare(reader())
    tables = [each.name for each in weight_layers(model, ["Gather"])]
    assert tables
    found = coded(model, *tables)
    for name in tables:
        table = read_by(model, name, 0)
        np.testing.assert_array_equal(read_by(found, name, 0), on_grid(table, (1,), 0.5).values)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_all_weights_of_a_recurrent_layer_are_coded(kind: str) -> None:
    model = prepare(recurrent(kind))
    (name,) = [each.name for each in weight_layers(model, [kind])]
    found = coded(model, name)
    for at in (1, 2):
        values = read_by(model, name, at)
        np.testing.assert_array_equal(read_by(found, name, at), on_grid(values, (2,), 0.5).values)


def test_a_weight_is_coded_once_for_all_that_read_it_alike() -> None:
    model = shared_weight()
    both = coded(model, "one", "two")
    assert len(both.to_bytes()) < len(coded(model, "one").to_bytes()) + 20
    np.testing.assert_array_equal(read_by(both, "one"), read_by(both, "two"))
    np.testing.assert_array_equal(read_by(coded(model, "one"), "two"), read_by(model, "two"))


def test_a_table_that_is_a_matrix_too_can_be_coded() -> None:
    model = prepare(tied())
    layers = [each.name for each in weight_layers(model, ["Gather", "MatMul", "Gemm"])]
    found = coded(model, *layers)
    outputs = [run(found, feeds(model), optimized=each)[0] for each in (False, True)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_values_that_are_no_numbers_cannot_be_coded(wrong: float) -> None:
    values = np.ones((40, 3, 5, 5), np.float32)
    values[3] = wrong
    with pytest.raises(QuantizationError, match="'stem_w' has values that are not finite.*float32"):
        coded(with_stem(values), "stem")


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e30])
def test_coded_weights_of_any_size_keep_their_digits(size: float) -> None:
    values = np.random.default_rng(0).standard_normal((40, 3, 5, 5)) * size
    found = read_by(coded(with_stem(values.astype(np.float32)), "stem"), "stem")
    error = np.sqrt(np.square((found - values) / size).mean())
    assert 0.1 < error < 0.2


def test_planned_bytes_of_coded_layers_are_those_of_the_file() -> None:
    for model, share in ((prepare(wide()), 0.02), (prepare(mobile(blocks=3)), 0.1)):
        layers = weight_layers(model, OPERATIONS)
        names = [layer.name for layer in layers]
        float_bytes = sum(layer.weight_bytes for layer in layers)
        grown = len(coded(model, *names).to_bytes()) - len(model.to_bytes()) + float_bytes
        planned = [each[HALF_STEP] for each in coded_sizes(model, layers).values()]
        assert sum(planned) == pytest.approx(grown, rel=share)


def test_a_larger_step_is_a_smaller_file() -> None:
    model = prepare(wide())
    layers = weight_layers(model, OPERATIONS)
    planned = coded_sizes(model, layers)
    sizes = [sum(each[name] for each in planned.values()) for name in CODED_STEPS]
    # From one step to the next it is half a bit.
    assert all(1.04 < after / before < 1.5 for before, after in itertools.pairwise(sizes))
    finest = store(model, dict.fromkeys((layer.name for layer in layers), [*CODED_STEPS][-1]))
    whole = sum(layer.weight_bytes for layer in layers)
    assert len(finest.to_bytes()) == pytest.approx(model.size - whole + sizes[-1], rel=0.02)


def test_two_readers_may_code_one_weight_in_two_steps() -> None:
    model = shared_weight()
    found = store(model, {"one": "coded_0.5", "two": "coded_0.25"})
    for layer, step in {"one": 0.5, "two": 0.25}.items():
        wanted = on_grid(read_by(model, layer), (1, 2, 3), step).values
        np.testing.assert_array_equal(read_by(found, layer), wanted)
