"""Layers that have to have the same precision."""

import pytest
from onnx import helper
from onnx_models import build, residual, weight
from quantizable_models import attention, mobile, shared_weight

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.groups import run_as_one
from seqto.graph.layers import weight_layers
from seqto.graph.prepare import prepare
from seqto.types import Kernel, Layer, Model

OPERATIONS = ("Conv", "Gemm", "MatMul")


def grouped(model: Model, kernels: dict[str, Kernel] | None = None) -> tuple[Layer, ...]:
    """Return the model's layers, grouped by these kernels or those that a CPU has for it."""
    running = OnnxRuntimeDevice().kernels(model) if kernels is None else kernels
    return run_as_one(model, weight_layers(model, OPERATIONS), running)


def groups(layers: tuple[Layer, ...]) -> dict[str, str]:
    return {layer.name: layer.group for layer in layers}


def row_of(reads: dict[str, str]) -> Model:
    """Return Convs in a row, and which weight each reads."""
    nodes, before = [], "x"
    for name, tensor in reads.items():
        nodes.append(helper.make_node("Conv", [before, tensor], [f"{name}_y"], name))
        before = f"{name}_y"
    weights = [weight(name, 4, 4, 1, 1) for name in dict.fromkeys(reads.values())]
    return build(nodes, weights, {"x": ["N", 4, 8, 8]}, {before: ["N", 4, 8, 8]})


def test_layers_that_read_one_weight_are_one() -> None:
    layers = grouped(prepare(shared_weight()))
    assert groups(layers) == {"one": "one", "two": "one"}
    assert {layer.unit for layer in layers} == {"one"}
    assert {layer.weight for layer in layers} == {"w"}


def test_projections_that_fuse_into_one_attention_are_one() -> None:
    model = prepare(attention())
    kernels = OnnxRuntimeDevice().kernels(model)
    assert kernels["q"] == kernels["k"] == kernels["v"] == Kernel("Attention", "Attention")
    layers = grouped(model)
    assert groups(layers) == {"q": "q", "k": "q", "v": "q", "out": ""}
    assert {layer.weight for layer in layers} == {"q_w", "k_w", "v_w", "out_w"}


@pytest.mark.parametrize("model", [residual(), mobile()], ids=lambda model: model.name)
def test_layers_that_fuse_only_with_what_is_no_layer_are_alone(model: Model) -> None:
    layers = grouped(prepare(model))
    assert {layer.group for layer in layers} == {""}
    assert [layer.unit for layer in layers] == [layer.name for layer in layers]


def test_layers_stay_in_order_and_are_otherwise_as_they_were() -> None:
    model = prepare(attention())
    before, after = weight_layers(model, OPERATIONS), grouped(model)
    assert after == before
    assert [layer.shape for layer in after] == [layer.shape for layer in before]


def test_weights_and_kernels_tie_together() -> None:
    # a and c by their weight, b and d as well, c and d by their kernel; e is alone.
    model = row_of({"a": "u", "b": "v", "c": "u", "d": "v", "e": "w"})
    kernels = {"c": Kernel("both", "Fused"), "d": Kernel("both", "Fused")}
    assert groups(grouped(model, {})) == {"a": "a", "b": "b", "c": "a", "d": "b", "e": ""}
    assert groups(grouped(model, kernels)) == {**dict.fromkeys("abcd", "a"), "e": ""}


def test_a_group_has_the_name_of_its_first_layer() -> None:
    model = row_of({name: name for name in ("c", "b", "a", "d")})
    kernels = {name: Kernel("one", "Fused") for name in ("a", "b")}
    assert groups(grouped(model, kernels)) == {"c": "", "b": "b", "a": "b", "d": ""}


def test_kernels_without_a_name_tie_nothing() -> None:
    kernels = {name: Kernel("", "Conv") for name in ("a", "b")}
    assert set(groups(grouped(row_of({"a": "u", "b": "v"}), kernels)).values()) == {""}
