"""Coded weights in models: decoded when a session is created, exactly."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from integer_streams import STREAMS
from onnx import TensorProto, helper

from seqto.graph.coded_weights import CodedWeight, code_weights
from seqto.graph.decoders import DOMAIN, functions
from seqto.graph.grids import Grid, on_grid

RNG = np.random.default_rng(11)


def model_of(weights: Sequence[CodedWeight], opset: int = 21) -> onnx.ModelProto:
    """Return a model that adds its input to each of these weights."""
    inputs, outputs, nodes = [], [], []
    for each in weights:
        name, shape = each.output, each.grid.integers.shape
        inputs.append(helper.make_tensor_value_info(f"x_{name}", each.data_type, []))
        outputs.append(helper.make_tensor_value_info(f"y_{name}", each.data_type, shape))
        nodes.append(helper.make_node("Add", [name, f"x_{name}"], [f"y_{name}"]))
    graph = helper.make_graph(nodes, "sums", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    code_weights(proto, weights)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def decoded(
    weights: Sequence[CodedWeight], level: str = "ORT_DISABLE_ALL", saved: Path | None = None
) -> list[np.ndarray]:
    """Return the weights as ONNX Runtime decodes them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    session = onnxruntime.InferenceSession(
        model_of(weights).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {each.output: each.data_type for each in weights}
    zeros = {
        f"x_{name}": np.zeros((), helper.tensor_dtype_to_np_dtype(of)) for name, of in types.items()
    }
    return list(session.run([f"y_{each.output}" for each in weights], zeros))


def plain(integers: np.ndarray) -> Grid:
    """Return integers with a step of 1."""
    return Grid(integers, np.zeros([1] * integers.ndim, np.uint8), np.float32(1))


def some_weights() -> list[CodedWeight]:
    """Return weights of several shapes, distributions and axes of their rows."""
    shapes = [((8, 3, 3, 3), (1, 2, 3)), ((40, 7), (0,)), ((300, 64), (1,)), ((9,), (0,))]
    found = []
    for at, (shape, reduced) in enumerate(shapes):
        values = (RNG.standard_normal(shape) ** 3 * 10.0**-at).astype(np.float32)
        found.append(CodedWeight(f"w{at}", on_grid(values, reduced, 0.5), TensorProto.FLOAT))
    return found


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", STREAMS)
def test_integers_are_decoded_exactly(name: str, level: str) -> None:
    integers = STREAMS[name]
    (found,) = decoded([CodedWeight("w", plain(integers), TensorProto.FLOAT)], level)
    # Integers beyond 2**24 are rounded to float32.
    np.testing.assert_array_equal(found, integers.astype(np.float32))


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_weights_are_decoded_bit_for_bit(level: str) -> None:
    weights = some_weights()
    for weight, found in zip(weights, decoded(weights, level), strict=True):
        np.testing.assert_array_equal(found, weight.grid.values)


def test_nothing_is_left_to_decode_in_a_session(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    decoded(some_weights(), "ORT_ENABLE_BASIC", path)
    optimized = onnx.load(path)
    assert {node.op_type for node in optimized.graph.node} == {"Add"}
    assert {each.data_type for each in optimized.graph.initializer} == {TensorProto.FLOAT}


def folded_bytes(proto: onnx.ModelProto) -> int:
    """Return the bytes of all that decoding makes: ONNX Runtime holds them until all is folded."""
    flat = onnx.inliner.inline_local_functions(proto)
    flat.graph.node.pop()
    names = [name for node in flat.graph.node for name in node.output]
    del flat.graph.output[:]
    flat.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        flat.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {each.name: np.zeros((), np.float32) for each in session.get_inputs()}
    return sum(each.nbytes for each in session.run(names, inputs))


@pytest.mark.parametrize(
    ("step", "most"), [(2, 28), (1, 28), (0.5, 32), (0.25, 36), (0.125, 36), (0.06, 40), (0.03, 51)]
)
def test_decoding_holds_few_bytes_for_each_weight(step: float, most: float) -> None:
    values = RNG.standard_normal((300, 1000)).astype(np.float32)
    proto = model_of([CodedWeight("w", on_grid(values, (1,), step), TensorProto.FLOAT)])
    assert folded_bytes(proto) < most * values.size


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_weights_have_the_type_that_they_had(kind: int) -> None:
    grid = on_grid(RNG.standard_normal((16, 40)), (1,), 0.4)
    (found,) = decoded([CodedWeight("w", grid, kind)])
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, grid.values.astype(dtype))


def test_names_of_the_model_are_not_taken_again() -> None:
    grids = [on_grid(RNG.standard_normal((4, 9)), (1,), 0.5) for _ in range(20)]
    weights = [CodedWeight(f"c{at:x}", grid, TensorProto.FLOAT) for at, grid in enumerate(grids)]
    for weight, found in zip(weights, decoded(weights), strict=True):
        np.testing.assert_array_equal(found, weight.grid.values)


def test_a_model_is_always_the_same() -> None:
    weights = some_weights()
    one, other = model_of(weights), model_of(weights)
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_everything_but_the_streams_is_small() -> None:
    values = RNG.standard_normal((64, 1000))
    weights = [CodedWeight("w", on_grid(values, (1,), 0.5), TensorProto.FLOAT)]
    proto = model_of(weights)
    held = sum(len(each.raw_data) for each in proto.graph.initializer)
    assert proto.ByteSize() - held < 5000


def test_a_model_without_coded_weights_stays_as_it_is() -> None:
    proto = model_of([])
    assert not proto.functions
    assert [each.domain for each in proto.opset_import] == [""]


def test_functions_are_added_once() -> None:
    weights = some_weights()
    proto = model_of(weights[:2])
    for node in list(proto.graph.node):
        if node.op_type == "Add":
            proto.graph.node.remove(node)
    code_weights(proto, [CodedWeight("more", weights[2].grid, TensorProto.FLOAT)])
    names = [each.name for each in proto.functions]
    assert len(names) == len(set(names)) <= len(functions(21))
    assert [each.domain for each in proto.opset_import].count(DOMAIN) == 1


@pytest.mark.parametrize("opset", [21, 22, 23])
def test_functions_are_of_the_opset_of_the_model(opset: int) -> None:
    proto = model_of(some_weights(), opset)
    opsets = {each.version for function in proto.functions for each in function.opset_import}
    assert opsets == {opset}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert len(session.get_outputs()) == len(some_weights())
