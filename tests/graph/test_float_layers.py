"""Layers left in float that stay so."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx_models import build, op_types, residual, run, weight
from quantizable_models import mobile, random_samples
from suite_quantizers import Prepared

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceImportError
from seqto.graph.float_layers import keep_in_float, undone_at_load
from seqto.graph.prepare import prepare
from seqto.quantizers.static import StaticQuantizer
from seqto.types import FLOAT16, INT4, INT8, Candidate, Model

RUNTIME = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def quantized(model: Model, *excluded: str, **options: bool) -> Model:
    """Return the statically quantized model."""
    floating = prepare(model)
    prepared = Prepared(StaticQuantizer(**options), floating, random_samples(floating))
    return prepared.excluding(*excluded)


def test_onnxruntime_quantizes_excluded_layers_unless_they_are_kept() -> None:
    """If this fails, ONNX Runtime no longer does so, and the module has no purpose."""
    device = OnnxRuntimeDevice()
    undone = quantized(residual(), "left", keep_float=False)
    assert device.kernels(undone)["left"].op_type == "QLinearConv"
    assert device.kernels(quantized(residual(), "left"))["left"].op_type == "Conv"


@pytest.mark.parametrize("precision", [FLOAT16, INT4])
def test_stored_weights_are_not_quantized_once_more(precision: str) -> None:
    floating = prepare(mobile())
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    chosen = dict.fromkeys(prepared.names, INT8) | {"block1_depthwise": precision}
    model = prepared.quantizer.quantize(prepared.model, prepared.ranges, Candidate.of(chosen))
    kernel = OnnxRuntimeDevice().kernels(model)["block1_depthwise"]
    assert not kernel.is_integer


def test_a_kept_layer_computes_with_its_float_weights() -> None:
    """Beside channels a hundred times as large, one scale for all would leave nothing of one."""
    proto = chain()
    (weights,) = (each for each in proto.graph.initializer if each.name == "w")
    values = onnx.numpy_helper.to_array(weights).copy()
    values[:3] *= 100
    weights.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    inputs = {"x": np.random.RandomState(0).randn(2, 3, 8, 8).astype(np.float32)}

    def gap() -> float:
        plain, optimized = (
            run(Model("chain", proto), inputs, optimized=each)[0][:, 3] for each in (False, True)
        )
        return float(np.abs(plain - optimized).max())

    # A tie may be rounded the other way, by one step.
    step = 0.1 * 1.001
    assert gap() > 2 * step
    keep_in_float(proto, ["conv"])
    assert gap() <= step


def test_only_layers_between_quantized_ones_are_kept() -> None:
    # Of two neighbours in float neither lies between a DequantizeLinear and a QuantizeLinear.
    assert "Concat" not in op_types(quantized(residual(), "left", "right"))
    assert op_types(quantized(residual(), "left")).count("Concat") == 1
    assert "Concat" not in op_types(quantized(residual()))


def chain(*between: str, extra: bool = False) -> onnx.ModelProto:
    """Return a Conv behind a DequantizeLinear, with these operations up to a QuantizeLinear."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "d"),
        helper.make_node("Conv", ["d", "w"], ["c"], "conv"),
    ]
    before = "c"
    for op in between:
        nodes.append(helper.make_node(op, [before], [f"{before}_{op}"], f"{before}_{op}"))
        before = f"{before}_{op}"
    nodes += [
        helper.make_node("QuantizeLinear", [before, "s"], ["e"], "e"),
        helper.make_node("DequantizeLinear", ["e", "s"], ["y"], "f"),
    ]
    outputs = {"y": ["N", 4, 8, 8]}
    if extra:
        nodes.append(helper.make_node("Neg", ["c"], ["z"], "neg"))
        outputs["z"] = ["N", 4, 8, 8]
    scale = onnx.numpy_helper.from_array(np.float32(0.1), "s")
    weights = [weight("w", 4, 3, 1, 1), scale]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, outputs, name="chain").proto


@pytest.mark.parametrize(
    ("between", "undone"),
    [((), True), (("Relu",), True), (("Sigmoid",), False)],
)
def test_what_is_undone_is_what_onnxruntime_undoes(between: tuple[str, ...], undone: bool) -> None:
    proto = chain(*between)
    assert undone_at_load(proto.graph, ["conv"]) == ({"conv"} if undone else set())
    if between == ("Relu",) and RUNTIME < (1, 31):
        # It gives the name of the Conv to both nodes that it makes of it.
        with pytest.raises(DeviceImportError, match="two nodes with same node name"):
            OnnxRuntimeDevice().kernels(Model("chain", proto))
    else:
        kernel = OnnxRuntimeDevice().kernels(Model("chain", proto))["conv"]
        assert kernel.is_integer == undone
    keep_in_float(proto, ["conv"])
    assert not OnnxRuntimeDevice().kernels(Model("chain", proto))["conv"].is_integer


def test_a_layer_that_something_else_reads_is_not_undone() -> None:
    proto = chain(extra=True)
    assert undone_at_load(proto.graph, ["conv"]) == set()
    assert not OnnxRuntimeDevice().kernels(Model("chain", proto))["conv"].is_integer


def test_layers_not_named_are_left_alone() -> None:
    proto = chain()
    before = proto.SerializeToString()
    keep_in_float(proto, ["another"])
    assert proto.SerializeToString() == before
    keep_in_float(proto, ["conv"])
    onnx.checker.check_model(proto, full_check=True)
    assert not OnnxRuntimeDevice().kernels(Model("chain", proto))["conv"].is_integer
