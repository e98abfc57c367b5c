"""MatMuls that read weights of 4 and 8 bits as they are stored."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import build, feeds, op_types, run, weight
from quantizable_models import node, random_samples
from sequence_models import floats_in, texts, tied
from suite_quantizers import Prepared

from seqto.errors import ConfigError
from seqto.graph.lowering import lowered
from seqto.graph.nbits import LEAST_WEIGHTS, block_of
from seqto.graph.prepare import prepare
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import FLOAT16, FLOAT32, INT4, INT8, Model

BOTH = pytest.mark.parametrize("precision", [INT4, INT8])


def perceptron(size: int = 64, hidden: int = 96) -> Model:
    """Return the MatMul `wide`, and the Gemm `narrow` behind it, for three tokens a sample."""
    nodes = [
        helper.make_node("MatMul", ["x", "wide_w"], ["h"], "wide"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r"], ["m"], "mean", axes=[1], keepdims=0),
        helper.make_node("Gemm", ["m", "narrow_w", "narrow_b"], ["y"], "narrow", transB=1),
    ]
    weights = [
        *(weight("wide_w", size, hidden), weight("narrow_w", 10, hidden), weight("narrow_b", 10))
    ]
    return build(nodes, weights, {"x": ["N", 3, size]}, {"y": ["N", 10]}, name="perceptron")


def prepared(model: Model, kernels: str, **options: object) -> Prepared:
    """Return the model as a quantizer with these kernels takes it."""
    floating = prepare(model)
    quantizer = WeightOnlyQuantizer(kernels=kernels, **options)
    return Prepared(quantizer, floating, random_samples(floating))


def share_of_noise(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(np.square(wanted - found).sum() / np.square(wanted).sum())


@BOTH
def test_a_matmul_reads_its_weight_as_it_is_stored(precision: str) -> None:
    found = prepared(perceptron(), "nbits")
    quantized = found.mixed(precision)
    assert op_types(quantized).count("MatMulNBits") == 2
    assert floats_in(quantized) == set()
    onnx.checker.check_model(quantized.proto)
    bits = {each.name: each.i for each in node(quantized, "wide").attribute}
    assert bits == {
        **{"K": 64, "N": 96, "bits": 4 if precision == INT4 else 8},
        **{"block_size": 32 if precision == INT4 else 64, "accuracy_level": 4},
    }
    wanted = run(found.floating, found.inputs)[0]
    for optimized in (False, True):
        noise = share_of_noise(wanted, run(quantized, found.inputs, optimized=optimized)[0])
        assert 0 < noise < (0.02 if precision == INT4 else 2e-4)


def test_weights_of_int4_are_those_that_are_unpacked_otherwise() -> None:
    # Only the activations are rounded besides.
    packed, unpacked = (prepared(perceptron(), each).mixed(INT4) for each in ("nbits", "unpacked"))
    inputs = feeds(unpacked, count=8)
    wanted = run(unpacked, inputs)[0]
    noise = share_of_noise(wanted, run(packed, inputs)[0])
    assert 0 < noise < 1e-4
    # Without that rounding, only that of the Gemm's bias to float16 is left of the difference.
    np.testing.assert_allclose(run(lowered(packed), inputs)[0], wanted, rtol=1e-4, atol=5e-4)


@BOTH
def test_importers_without_it_get_a_matmul(precision: str) -> None:
    quantized = prepared(perceptron(), "nbits").mixed(precision)
    simple = lowered(quantized)
    assert "MatMulNBits" not in op_types(simple)
    assert {each.domain for each in simple.proto.graph.node} == {""}
    inputs = feeds(quantized, count=8)
    noise = share_of_noise(run(quantized, inputs)[0], run(simple, inputs)[0])
    assert noise < 1e-4


@pytest.mark.parametrize("precision", [FLOAT16, FLOAT32])
def test_other_precisions_run_in_float(precision: str) -> None:
    assert "MatMulNBits" not in op_types(prepared(perceptron(), "nbits").mixed(precision))


def test_float32_is_the_prepared_model() -> None:
    found = prepared(perceptron(), "nbits")
    np.testing.assert_array_equal(
        run(found.excluding(*found.names), found.inputs)[0], run(found.model, found.inputs)[0]
    )


def test_large_matrices_are_chosen_in_int4() -> None:
    large, small = perceptron(384, 384), perceptron(384, 352)
    assert op_types(prepared(large, "auto").mixed(INT4)).count("MatMulNBits") == 1
    assert "MatMulNBits" not in op_types(prepared(large, "auto").mixed(INT8))
    assert "MatMulNBits" not in op_types(prepared(small, "auto").mixed(INT4))
    assert "MatMulNBits" not in op_types(prepared(large, "unpacked").mixed(INT4))
    assert LEAST_WEIGHTS == 384 * 384
    assert WeightOnlyQuantizer().kernels == "unpacked"
    # The other layer is small, and stays a Gemm.
    assert node(prepared(large, "auto").model, "narrow").op_type == "Gemm"


def test_rows_that_fill_no_block_are_unpacked_at_load() -> None:
    found = prepared(perceptron(64, 40), "nbits")
    quantized = found.mixed(INT4)
    assert op_types(quantized).count("MatMulNBits") == 1
    assert node(quantized, "narrow").op_type == "MatMul"
    assert floats_in(quantized) == set()


def test_blocks_are_those_that_it_has() -> None:
    assert [block_of(384, INT4, each) for each in (16, 32, 48, 8, 256)] == [16, 32, 0, 0, 0]
    assert [block_of(each, INT8, 0) for each in (384, 320, 96, 48)] == [128, 64, 32, 0]


@pytest.mark.parametrize("block_size", [16, 24, 64])
@pytest.mark.parametrize("kernels", ["nbits", "auto"])
@BOTH
def test_planned_bytes_are_those_of_the_file(precision: str, kernels: str, block_size: int) -> None:
    found = prepared(perceptron(576, 640), kernels, block_size=block_size)
    rest = len(found.excluding(*found.names).to_bytes()) - sum(
        layer.weight_bytes for layer in found.layers
    )
    planned = sum(found.quantizer.stored_bytes(layer, precision) for layer in found.layers)
    assert len(found.mixed(precision).to_bytes()) - rest == pytest.approx(planned, rel=0.02)


def test_gemms_are_excluded_by_their_operation() -> None:
    assert prepared(perceptron(), "nbits", exclude=["op:Gemm"]).names == ["wide"]
    assert prepared(perceptron(), "nbits", op_types=["MatMul"]).names == ["wide"]


def test_a_model_without_a_matmul_for_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="kernels=nbits has no MatMul to run in 'perceptron'"):
        prepared(perceptron(60, 50), "nbits")


def test_a_tied_table_stays_in_the_file_once() -> None:
    floating = prepare(tied(width=64))
    found = Prepared(WeightOnlyQuantizer(kernels="nbits"), floating, texts(floating))
    quantized = found.mixed(INT8)
    assert op_types(quantized).count("MatMulNBits") == 1
    stored = [each for each in quantized.proto.graph.initializer if np.prod(each.dims) == 300 * 64]
    assert [each.data_type for each in stored] == [TensorProto.INT8]
