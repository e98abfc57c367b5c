"""Every quantizer on embedding tables, recurrent layers and transposed convolutions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx_models import build, op_types, run, weight
from onnxruntime.quantization import QuantType, quantize_dynamic
from sequence_models import (
    constant,
    floats_in,
    reader,
    recurrent,
    texts,
    tied,
    upsampler,
)
from suite_quantizers import Prepared, tried

from seqto.graph.groups import run_as_one
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import CODED_STEPS, FLOAT16, FLOAT32, INT4, INT8, INT16, Candidate, Model

QUANTIZERS: dict[str, Callable[[], Quantizer]] = {
    "static": StaticQuantizer,
    "dynamic": DynamicQuantizer,
    "dynamic per channel": lambda: DynamicQuantizer(per_channel=True),
    "weight_only": WeightOnlyQuantizer,
}
MODELS: dict[str, Callable[[], Model]] = {
    "reader": reader,
    "tied": tied,
    "lstm": lambda: recurrent("LSTM"),
    "gru": lambda: recurrent("GRU"),
    "rnn": lambda: recurrent("RNN", directions=1),
    "upsampler": upsampler,
}
LAYERS = {
    "reader": ["embed", "place", "mix", "head"],
    "tied": ["embed", "mix", "head"],
    "upsampler": ["conv", "up"],
    **{kind: ["cell", "head"] for kind in ("lstm", "gru", "rnn")},
}
WEIGHTS = {
    "reader": {"embed": {"table"}, "place": {"place_table"}, "mix": {"mix_w"}, "head": {"head_w"}},
    "tied": {"embed": {"table"}, "mix": {"mix_w"}, "head": {"table"}},
    "upsampler": {"conv": {"conv_w"}, "up": {"up_w"}},
    **{kind: {"cell": {"w", "r"}, "head": {"head_w"}} for kind in ("lstm", "gru", "rnn")},
}

EVERY_QUANTIZER = pytest.mark.parametrize("quantizer", QUANTIZERS)
EVERY_MODEL = pytest.mark.parametrize("model", MODELS)


def prepared(quantizer: str, model: Model) -> Prepared:
    """Return the model as this quantizer takes it, calibrated on words and noise."""
    floating = prepare(model)
    return Prepared(QUANTIZERS[quantizer](), floating, texts(floating))


def float_weights(model: Model) -> set[str]:
    """Return the float weights, by their names in the user's model."""
    return {name.removesuffix("_transposed") for name in floats_in(model)}


@EVERY_QUANTIZER
@EVERY_MODEL
def test_what_holds_the_bytes_is_a_layer(quantizer: str, model: str) -> None:
    found = prepared(quantizer, MODELS[model]())
    assert found.names == LAYERS[model]
    constants = {each.name: each for each in found.floating.proto.graph.initializer}
    for layer in found.layers:
        size = sum(
            numpy_helper.to_array(constants[each]).nbytes for each in WEIGHTS[model][layer.name]
        )
        assert layer.weight_bytes == size


@EVERY_QUANTIZER
@EVERY_MODEL
def test_all_layers_in_float32_are_the_float_model(quantizer: str, model: str) -> None:
    found = prepared(quantizer, MODELS[model]())
    unchanged = found.excluding(*found.names)
    for optimized in (False, True):
        np.testing.assert_array_equal(
            run(unchanged, found.inputs, optimized=optimized)[0],
            run(found.model, found.inputs, optimized=optimized)[0],
        )


@EVERY_QUANTIZER
@EVERY_MODEL
def test_only_layers_in_float32_have_float_weights(quantizer: str, model: str) -> None:
    found = prepared(quantizer, MODELS[model]())
    assert float_weights(found.excluding()) == set()
    for name in found.names:
        assert float_weights(found.excluding(name)) == WEIGHTS[model][name]


@EVERY_QUANTIZER
@EVERY_MODEL
def test_every_precision_is_another_valid_model_near_the_float_one(
    quantizer: str, model: str
) -> None:
    found = prepared(quantizer, MODELS[model]())
    wanted = run(found.floating, found.inputs)[0]
    # Shares of the largest output, about twice what was seen.
    limits = {"coded_0.5": 0.5, INT4: 0.35, INT8: 0.04, INT16: 0.03, FLOAT16: 0.002, FLOAT32: 1e-6}
    files = set()
    for precision in tried(found.quantizer):
        quantized = found.mixed(precision)
        onnx.checker.check_model(quantized.proto, full_check=True)
        for optimized in (False, True):
            moved = np.abs(run(quantized, found.inputs, optimized=optimized)[0] - wanted).max()
            assert moved <= limits[precision] * np.abs(wanted).max()
            assert precision == FLOAT32 or moved > 0
        files.add(quantized.to_bytes())
        assert found.mixed(precision).to_bytes() == quantized.to_bytes()
    assert len(files) == len(tried(found.quantizer))


@EVERY_QUANTIZER
@pytest.mark.parametrize(
    "large",
    [
        lambda: reader(words=4000, width=100),
        lambda: tied(words=3000, width=130),
        lambda: recurrent("LSTM", 200, 100),
        lambda: recurrent("GRU", 100, 200, directions=1),
    ],
)
def test_planned_bytes_are_those_of_the_file(quantizer: str, large: Callable[[], Model]) -> None:
    found = prepared(quantizer, large())
    layers = run_as_one(found.model, found.layers, {})
    once = {layer.weight: layer for layer in layers}.values()
    rest = len(found.excluding(*found.names).to_bytes()) - sum(each.weight_bytes for each in once)
    for precision in tried(found.quantizer):
        planned = sum(found.quantizer.stored_bytes(layer, precision) for layer in once)
        size = len(found.mixed(precision).to_bytes())
        assert size - rest == pytest.approx(planned, rel=0.02)


@pytest.mark.parametrize("model", ["reader", "lstm"])
def test_int8_is_about_as_small_as_by_quantize_dynamic(model: str, tmp_path: Path) -> None:
    # With the constants of large models: names and nodes do not count.
    floating = prepare(reader(4000, 100) if model == "reader" else recurrent("LSTM", 200, 100))
    path = tmp_path / "plain.onnx"
    quantize_dynamic(floating.copy_proto(), path, weight_type=QuantType.QUInt8)
    found = Prepared(DynamicQuantizer(), floating, texts(floating))
    assert len(found.excluding().to_bytes()) < 1.03 * path.stat().st_size


# Tables.


@EVERY_QUANTIZER
@pytest.mark.parametrize("precision", [INT4, INT8, FLOAT16])
def test_rows_are_looked_up_before_they_are_unpacked(quantizer: str, precision: str) -> None:
    found = prepared(quantizer, reader())
    precisions = dict.fromkeys(found.names, FLOAT32) | {"embed": precision}
    stored = found.quantizer.quantize(found.model, found.ranges, Candidate.of(precisions))
    gathers = [node for node in stored.proto.graph.node if node.op_type == "Gather"]
    tables = {each.name: each for each in stored.proto.graph.initializer}
    whole = [
        node.output[0]
        for node in stored.proto.graph.node
        if node.op_type == "Cast"
        and node.input[0] in tables
        and len(tables[node.input[0]].dims) > 1
    ]
    # No 4-bit rows can be gathered: they become 8-bit integers when the model is loaded.
    assert len(whole) == (precision == INT4)
    assert {"ids"} < {node.input[1] for node in gathers}


def row_error(values: np.ndarray, found: np.ndarray) -> float:
    """Return the largest error of a value, as a share of the largest in its row."""
    return float((np.abs(values - found).max(axis=1) / np.abs(values).max(axis=1)).max())


@pytest.mark.parametrize(
    ("precision", "error"), [(INT4, 1 / 8), (INT8, 1 / 250), (INT16, 1 / 65000)]
)
@pytest.mark.parametrize("width", [40, 32, 33, 1, 97])
def test_each_row_has_a_scale_of_its_own(precision: str, error: float, width: int) -> None:
    # Rows of which some are a thousand times larger than others.
    values = np.random.RandomState(0).randn(300, width) * np.logspace(-2, 1, 300)[:, None]
    found = looked_up(values.astype(np.float32), precision, axis=0)
    assert row_error(values, found) < error * 1.02


@pytest.mark.parametrize("precision", [INT4, INT8, INT16, FLOAT16])
@pytest.mark.parametrize("dims", [(50, 6, 5), (50, 11, 3), (80, 2, 2), (50, 6, 32)])
def test_rows_may_have_several_axes(precision: str, dims: tuple[int, ...]) -> None:
    values = np.random.RandomState(0).randn(*dims).astype(np.float32)
    found = looked_up(values, precision, axis=0)
    assert 0 < row_error(values.reshape(dims[0], -1), found.reshape(dims[0], -1)) <= 1 / 7.9


@pytest.mark.parametrize("precision", [INT4, INT8, INT16, FLOAT16])
def test_tables_may_be_read_along_another_axis(precision: str) -> None:
    values = np.random.RandomState(0).randn(70, 50).astype(np.float32)
    found = looked_up(values, precision, axis=1)
    assert 0 < row_error(values.T, found.T) <= 1 / 7.9


def looked_up(values: np.ndarray, precision: str, axis: int) -> np.ndarray:
    """Return the table as lookups of all its rows in order find it."""
    node = onnx.helper.make_node("Gather", ["table", "ids"], ["y"], "embed", axis=axis)
    model = build(
        [node], [numpy_helper.from_array(values, "table")], {"ids": ["N"]}, {"y": values.shape}
    )
    model.proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    quantizer = StaticQuantizer() if precision == INT16 else WeightOnlyQuantizer()
    ready, layers = quantizer.prepare(prepare(model))
    stored = quantizer.quantize(ready, {}, Candidate.of({layers[0].name: precision}))
    onnx.checker.check_model(stored.proto, full_check=True)
    found: np.ndarray = run(stored, {"ids": np.arange(values.shape[axis])})[0]
    return found


def test_a_table_of_two_lookups_is_stored_once() -> None:
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["a"], "one"),
        onnx.helper.make_node("Gather", ["table", "others"], ["b"], "two"),
        onnx.helper.make_node("Sub", ["a", "b"], ["y"], "sub"),
    ]
    shape = ["N", 12]
    model = build(
        nodes, [weight("table", 300, 40)], {"ids": shape, "others": shape}, {"y": ["N", 12, 40]}
    )
    for value in model.proto.graph.input:
        value.type.tensor_type.elem_type = TensorProto.INT64
    found = prepared("weight_only", model)
    layers = run_as_one(found.model, found.layers, {})
    assert [(each.group, each.weight) for each in layers] == [("one", "table")] * 2
    for precision in (INT4, INT8, FLOAT16):
        size = len(found.mixed(precision).to_bytes())
        assert size < found.quantizer.stored_bytes(layers[0], precision) + 2000
    # Apart, each lookup keeps the form that it needs.
    mixed = found.mixed(INT8, FLOAT32)
    assert floats_in(mixed) == {"table"}
    wanted = run(found.floating, found.inputs)[0]
    np.testing.assert_allclose(run(mixed, found.inputs)[0], wanted, atol=0.02)


# Weights that a table shares.


@EVERY_QUANTIZER
def test_a_tied_table_is_in_the_file_once_in_every_precision(quantizer: str) -> None:
    found = prepared(quantizer, tied())
    layers = {each.name: each for each in run_as_one(found.model, found.layers, {})}
    assert layers["embed"].unit == layers["head"].unit == "embed"
    assert layers["embed"].weight == layers["head"].weight == "table"
    assert layers["mix"].group == ""
    for precision in tried(found.quantizer):
        quantized = found.mixed(precision)
        sizes = [int(np.prod(each.dims)) for each in quantized.proto.graph.initializer]
        # Coded weights are in common streams: here, the table and the other layer's.
        coded = op_types(quantized).count("Weight") - 1
        assert (coded if precision in CODED_STEPS else sizes.count(300 * 40)) == 1


@EVERY_QUANTIZER
def test_lookup_and_product_of_a_tied_table_read_the_same_values(quantizer: str) -> None:
    found = prepared(quantizer, tied())
    table = constant(found.floating, "table")
    precisions = dict.fromkeys(found.names, FLOAT32) | {"embed": INT8, "head": INT8}
    stored = found.quantizer.quantize(found.model, found.ranges, Candidate.of(precisions))
    scales = np.abs(table).max(axis=1, keepdims=True) / 127
    rounded = np.rint(table / scales) * scales
    mean = rounded[found.inputs["ids"]].mean(axis=1)
    wanted = np.maximum(mean @ constant(found.floating, "mix_w"), 0) @ rounded.T
    np.testing.assert_allclose(run(stored, found.inputs)[0], wanted, rtol=0.01, atol=0.02)


# Recurrent layers.


def test_an_lstm_runs_in_integers_where_quantization_is_dynamic() -> None:
    found = prepared("dynamic", recurrent("LSTM"))
    assert "DynamicQuantizeLSTM" in op_types(found.excluding())
    assert "DynamicQuantizeLSTM" not in op_types(found.excluding("cell"))
    for other in ("static", "weight_only"):
        assert "LSTM" in op_types(prepared(other, recurrent("LSTM")).excluding())


@pytest.mark.parametrize("per_channel", [False, True])
def test_an_lstm_is_that_of_quantize_dynamic(per_channel: bool, tmp_path: Path) -> None:
    floating = prepare(recurrent("LSTM"))
    quantizer = DynamicQuantizer(per_channel=per_channel, feedback=False)
    found = Prepared(quantizer, floating, texts(floating))
    path = tmp_path / "plain.onnx"
    quantize_dynamic(
        floating.copy_proto(), path, weight_type=QuantType.QUInt8, per_channel=per_channel
    )
    theirs = Model("plain", onnx.load(path))
    found.excluding("cell")
    for _ in range(2):
        # The second time, the quantized weights are known.
        np.testing.assert_array_equal(
            run(found.excluding(), found.inputs)[0], run(theirs, found.inputs)[0]
        )


@EVERY_QUANTIZER
def test_lstms_that_share_weights_agree(quantizer: str) -> None:
    nodes = [
        onnx.helper.make_node("LSTM", ["x", "w", "r"], ["", "a"], "one", hidden_size=16),
        onnx.helper.make_node("Neg", ["x"], ["n"], "neg"),
        onnx.helper.make_node("LSTM", ["n", "w", "r"], ["", "b"], "two", hidden_size=16),
        onnx.helper.make_node("Sub", ["a", "b"], ["y"], "sub"),
    ]
    weights = [weight("w", 1, 64, 24), weight("r", 1, 64, 16)]
    found = prepared(quantizer, build(nodes, weights, {"x": ["N", 5, 24]}, {"y": [1, 5, 16]}))
    layers = run_as_one(found.model, found.layers, {})
    assert {each.unit for each in layers} == {"one"}
    wanted = run(found.floating, found.inputs)[0]
    limit = 0.05 * np.abs(wanted).max()
    for precisions in ((INT8,), (INT8, FLOAT32), (FLOAT32, INT8), (INT8, FLOAT16)):
        outputs = run(found.mixed(*precisions), found.inputs)[0]
        np.testing.assert_allclose(outputs, wanted, atol=limit)


@EVERY_QUANTIZER
def test_a_constant_on_the_left_of_a_matmul_becomes_smaller_too(quantizer: str) -> None:
    node = onnx.helper.make_node("MatMul", ["w", "x"], ["y"], "mix")
    model = build([node], [weight("w", 40, 60)], {"x": ["N", 60, 4]}, {"y": ["N", 40, 4]})
    found = prepared(quantizer, model)
    assert floats_in(found.excluding()) == set()
    assert len(found.excluding().to_bytes()) < 60 * 40 + 2000
