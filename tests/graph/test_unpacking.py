"""Stored weights as plain constants: the same outputs, and nothing left to unpack."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, matmul_add, op_types, residual, weight
from quantizable_models import attention, mobile, random_samples, shared_weight, wide
from sequence_models import reader, recurrent, texts, tied, upsampler
from suite_quantizers import Prepared

from seqto.graph.decoders import DOMAIN
from seqto.graph.nodes import initializers
from seqto.graph.packing import rounded
from seqto.graph.prepare import prepare
from seqto.graph.short_names import shorten_names
from seqto.graph.unpacking import unpacked
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Model

MODELS: dict[str, Callable[[], Model]] = {
    "residual": residual,
    "mobile": mobile,
    "wide": wide,
    "shared": shared_weight,
    "attention": attention,
    "upsampler": upsampler,
    "lstm": lambda: recurrent("LSTM"),
    "reader": reader,
    "tied": tied,
}
TEXTS = ("reader", "tied")
QUANTIZERS: dict[str, Quantizer] = {
    "weight_only": WeightOnlyQuantizer(),
    "static": StaticQuantizer(),
    "undone": StaticQuantizer(keep_float=False),
    "dynamic": DynamicQuantizer(),
}
CODED = tuple(each for each in WeightOnlyQuantizer().precisions if each.startswith("coded"))


def prepared(name: str, quantizer: Quantizer) -> Prepared:
    model = prepare(MODELS[name]())
    return Prepared(quantizer, model, texts(model) if name in TEXTS else random_samples(model))


def outputs(model: Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a session as users create it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.to_bytes(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def mixtures(precisions: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each precision for all layers, and all of them in turn, in both directions."""
    return [*((each,) for each in precisions), tuple(precisions), tuple(precisions[::-1])]


@pytest.mark.parametrize("kind", QUANTIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_the_same_bit_for_bit(name: str, kind: str) -> None:
    ready = prepared(name, QUANTIZERS[kind])
    for mixture in mixtures(ready.quantizer.precisions):
        stored = ready.mixed(*mixture)
        before = stored.to_bytes()
        plain = unpacked(stored)
        assert stored.to_bytes() == before, "the candidate itself was changed"
        onnx.checker.check_model(plain.proto, full_check=True)
        assert plain.session == stored.session
        for wanted, found in zip(
            outputs(stored, ready.inputs), outputs(plain, ready.inputs), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["residual", "mobile", "upsampler", "lstm"])
def test_nothing_is_left_to_unpack(name: str) -> None:
    ready = prepared(name, WeightOnlyQuantizer())
    for mixture in mixtures(ready.quantizer.precisions):
        plain = unpacked(ready.mixed(*mixture))
        assert op_types(plain) == op_types(ready.model)
        types = {each.data_type for each in plain.proto.graph.initializer}
        given = {each.data_type for each in ready.model.proto.graph.initializer}
        assert types <= given
        assert not plain.proto.functions
        assert [each.domain for each in plain.proto.opset_import] == [""]
        # As large as the float model: nothing that was stored is left behind.
        assert named_shortly(plain) == pytest.approx(named_shortly(ready.mixed("float32")), abs=300)


def named_shortly(model: Model) -> int:
    """Return the size that the model has with short names inside."""
    proto = model.copy_proto()
    shorten_names(proto.graph)
    return len(proto.SerializeToString())


@pytest.mark.parametrize("precision", ["int4", "int8", "float16"])
def test_weights_are_what_the_stored_ones_stand_for(precision: str) -> None:
    model = prepare(matmul_add())
    ready = Prepared(WeightOnlyQuantizer(feedback=False), model, random_samples(model))
    (layer,) = (node for node in ready.model.proto.graph.node if node.name in ready.names)
    given = numpy_helper.to_array(initializers(ready.model.proto.graph)[layer.input[1]])
    plain = unpacked(ready.mixed(precision)).proto.graph
    (layer,) = (node for node in plain.node if node.name in ready.names)
    found = numpy_helper.to_array(initializers(plain)[layer.input[1]])
    wanted = (
        given.astype(np.float16).astype(np.float32)
        if precision == "float16"
        else rounded(given, precision, (0,), 32).values
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("precision", [*CODED, "float32"])
def test_a_model_that_is_not_stored_stays_as_it_is(precision: str) -> None:
    ready = prepared("residual", WeightOnlyQuantizer())
    plain = unpacked(ready.mixed(precision))
    assert unpacked(plain).to_bytes() == plain.to_bytes()
    assert (plain.to_bytes() == ready.mixed(precision).to_bytes()) == (precision == "float32")


def test_integers_of_integer_kernels_stay_integers() -> None:
    ready = prepared("mobile", StaticQuantizer())
    stored = ready.mixed("int8", "float16", "int4")
    plain = unpacked(stored)

    def dequantized(model: Model) -> dict[str, bytes]:
        constants = initializers(model.proto.graph)
        return {
            node.name: constants[node.input[0]].raw_data
            for node in model.proto.graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in constants
        }

    assert dequantized(stored) and dequantized(plain) == dequantized(stored)
    types = {each.data_type for each in plain.proto.graph.initializer}
    assert not types & {TensorProto.INT4, TensorProto.FLOAT16}
    assert unpacked(ready.mixed("int8")).to_bytes() == ready.mixed("int8").to_bytes()


def test_weights_of_packed_matmuls_stay_packed() -> None:
    model = prepare(attention(width=32))
    ready = Prepared(WeightOnlyQuantizer(kernels="nbits"), model, random_samples(model))
    stored = ready.mixed("int4")
    assert "MatMulNBits" in op_types(stored)
    plain = unpacked(stored)
    assert op_types(plain).count("MatMulNBits") == op_types(stored).count("MatMulNBits")
    assert {each.domain for each in plain.proto.opset_import} == {"", "com.microsoft"}
    for wanted, found in zip(
        outputs(stored, ready.inputs), outputs(plain, ready.inputs), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_int8_weights_that_are_read_apart_are_still_stored_once() -> None:
    # A slice of integers is no unpacking, although it depends on constants only.
    shared = prepared("shared", StaticQuantizer()).mixed("int8")
    assert "Slice" in op_types(shared)
    assert unpacked(shared).to_bytes() == shared.to_bytes()


def test_constants_of_the_users_own_are_not_folded() -> None:
    counts = numpy_helper.from_array(np.arange(6, dtype=np.int32), "counts")
    scales = numpy_helper.from_array(np.float16([0.5]), "scale")
    nodes = [
        helper.make_node("Cast", ["counts"], ["numbers"], "own", to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "numbers"], ["a"], "add"),
        helper.make_node("Cast", ["scale"], ["wide"], "stored", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["a", "wide"], ["b"], "scaled"),
        helper.make_node("Transpose", ["matrix"], ["turned"], "turn"),
        helper.make_node("MatMul", ["b", "turned"], ["y"], "layer"),
    ]
    held = [counts, scales, weight("matrix", 2, 6)]
    plain = unpacked(build(nodes, held, {"x": ["N", 6]}, {"y": ["N", 2]}))
    assert op_types(plain) == ["Cast", "Add", "Mul", "Transpose", "MatMul"]
    constants = initializers(plain.proto.graph)
    assert set(constants) == {"counts", "matrix", "wide"}
    np.testing.assert_array_equal(numpy_helper.to_array(constants["wide"]), np.float32([0.5]))


def test_a_constant_that_users_may_override_is_not_folded() -> None:
    scales = numpy_helper.from_array(np.float16([0.5]), "scale")
    nodes = [
        helper.make_node("Cast", ["scale"], ["wide"], "stored", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "wide"], ["y"], "scaled"),
    ]
    model = build(nodes, [scales], {"x": ["N", 1]}, {"y": ["N", 1]})
    model.proto.graph.input.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT16, [1]))
    assert unpacked(model).to_bytes() == model.to_bytes()


def test_rows_of_a_table_are_still_unpacked_when_they_are_looked_up() -> None:
    ready = prepared("reader", WeightOnlyQuantizer())
    for precision, kind in {"int4": TensorProto.INT8, "int8": TensorProto.INT8}.items():
        stored, plain = ready.mixed(precision), unpacked(ready.mixed(precision))
        assert op_types(plain).count("Gather") == op_types(stored).count("Gather") > 1
        tables = {
            constants[node.input[0]].data_type
            for constants in [initializers(plain.proto.graph)]
            for node in plain.proto.graph.node
            if node.op_type == "Gather" and node.input[0] in constants
        }
        assert kind in tables and TensorProto.INT4 not in tables
    for precision in CODED:
        plain = unpacked(ready.mixed(precision))
        assert op_types(plain) == op_types(ready.model)


def test_functions_that_something_calls_stay() -> None:
    proto = prepared("residual", WeightOnlyQuantizer()).mixed(*CODED[:1]).proto
    weights = [node for node in proto.graph.node if node.op_type == "Weight"]
    # As if a shape were not known before a sample comes.
    proto.graph.input.append(helper.make_tensor_value_info("later", TensorProto.INT64, [4]))
    weights[0].input[1] = "later"
    plain = unpacked(Model("changed", proto))
    assert [node.op_type for node in plain.proto.graph.node if node.domain == DOMAIN] == ["Weight"]
    assert "Weight" in {each.name for each in plain.proto.functions}
    onnx.checker.check_model(plain.proto)
