"""Packed channels on TVM: the same values as ONNX Runtime's, in one layout from end to end."""

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, run, weight
from quantizable_models import random_samples

from seqto.devices import tvm_compile
from seqto.devices.tvm_device import TvmDevice
from seqto.graph.prepare import prepare
from seqto.types import Model

X86 = platform.machine() in ("x86_64", "AMD64")
PICTURES = [(14, 14), (7, 7), (5, 9), (1, 1)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path_factory.getbasetemp() / "tvm"
    monkeypatch.setenv("SEQTO_CACHE", str(folder))
    yield folder


def convolution(
    given: str, name: str, shape: list[int], **attributes: Any
) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    """Return a convolution with a bias, and its weights."""
    node = helper.make_node("Conv", [given, f"{name}_w", f"{name}_b"], [name], name, **attributes)
    return node, [weight(f"{name}_w", *shape), weight(f"{name}_b", shape[0])]


def network(picture: tuple[int, int], outputs: tuple[str, ...] = ("last",)) -> Model:
    """Return convolutions of all kinds with what is usual between them."""
    pads = {"pads": [1, 1, 1, 1]}
    made = [
        convolution("x", "first", [32, 3, 3, 3], **pads),
        convolution("limited", "across", [32, 1, 3, 3], group=32, **pads),
        convolution("across", "narrow", [24, 32, 1, 1]),
        convolution("narrow", "dense", [24, 24, 3, 3], pads=[0, 1, 2, 1], strides=[2, 1]),
        convolution("narrow", "far", [24, 1, 3, 3], group=24, dilations=[2, 2], pads=[2] * 4),
        convolution("summed", "skipping", [16, 24, 1, 1], strides=[2, 2]),
        convolution("scaled", "uneven", [10, 16, 1, 1]),
        convolution("uneven", "grouped", [16, 5, 1, 1], group=2),
        convolution("grouped", "last", [48, 16, 1, 1]),
        convolution("across", "halved", [32, 1, 5, 5], group=32, strides=[2, 2], pads=[2] * 4),
    ]
    nodes = [node for node, _ in made]
    weights = [each for _, both in made for each in both]
    weights += [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in (("none", 0), ("six", 6))
    ]
    weights += [weight("by_channel", 16, 1, 1), weight("by_pixel", 1, 1, *picture)]
    nodes.insert(1, helper.make_node("Clip", ["first", "none", "six"], ["limited"], "clip"))
    nodes.insert(6, helper.make_node("Mul", ["far", "by_pixel"], ["lit"], "light"))
    nodes.insert(7, helper.make_node("Add", ["lit", "narrow"], ["summed"], "add"))
    nodes.insert(9, helper.make_node("Mul", ["skipping", "by_channel"], ["scaled"], "scale"))
    shapes = {name: [1, None, None, None] for name in outputs}
    return prepare(build(nodes, weights, {"x": [1, 3, *picture]}, shapes))


def agrees(model: Model, device: TvmDevice) -> None:
    samples = random_samples(model, count=2)
    found = device.load(model).run(samples.inputs)
    wanted = [run(model, dict(each)) for each in samples.batches(1)]
    for at, here in enumerate(found):
        there = np.concatenate([each[at] for each in wanted])
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-5 * np.abs(there).max())


@pytest.mark.parametrize("picture", PICTURES)
def test_a_network_of_all_kinds_agrees(picture: tuple[int, int]) -> None:
    agrees(
        network(picture, ("last", "narrow", "dense", "uneven", "limited", "halved")), TvmDevice()
    )


@pytest.mark.skipif(not X86, reason="these are x86 CPUs")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
def test_cpus_with_other_vectors_agree(cpu: str) -> None:
    agrees(network((14, 14)), TvmDevice(target={"kind": "llvm", "mcpu": cpu}))


@pytest.mark.parametrize("rows", [[1, 20], [1, 6, 20], [1, 2, 5, 20]])
@pytest.mark.parametrize("columns", [1000, 48, 10])
def test_products_with_a_constant_matrix_agree(rows: list[int], columns: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Add", ["m", "b"], ["y"], "bias"),
    ]
    weights = [weight("w", 20, columns), weight("b", columns)]
    model = build(nodes, weights, {"x": rows}, {"y": [*rows[:-1], columns]})
    agrees(model, TvmDevice())


@pytest.mark.parametrize("picture", PICTURES)
def test_single_values_of_packed_pictures_agree(picture: tuple[int, int]) -> None:
    conv, weights = convolution("x", "conv", [32, 3, 1, 1])
    nodes, kinds = [conv], ("ReduceMax", "ReduceMin", "ReduceSum")
    for kind in kinds:
        nodes.append(helper.make_node(kind, ["conv"], [f"{kind}_all"], f"{kind}_all", keepdims=0))
        nodes.append(helper.make_node("Sub", ["conv", f"{kind}_all"], [kind], kind))
    outputs = {kind: [1, 32, *picture] for kind in kinds}
    agrees(prepare(build(nodes, weights, {"x": [1, 3, *picture]}, outputs)), TvmDevice())


def operations(model: Model, cpu: str = "") -> tuple[str, list[str]]:
    """Return TVM's program of a model, and the names of the functions that it calls in turn."""
    import tvm

    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": cpu} if cpu else dict(TvmDevice()._recipe().target)
    )
    with target:
        steps = tvm.transform.Sequential(tvm_compile.scheduled_passes(target))
        text = str(steps(tvm_compile._imported(model, "tvm")))
    return text, re.findall(r"call_tir\(cls\.(\w+)", text)


def test_what_is_between_packed_convolutions_is_packed_and_fused() -> None:
    made = [
        convolution("x", "first", [32, 3, 3, 3]),
        convolution("limited", "across", [32, 1, 3, 3], group=32),
        convolution("across", "third", [32, 32, 1, 1]),
        convolution("third", "fourth", [32, 32, 1, 1]),
    ]
    nodes = [node for node, _ in made]
    nodes.insert(1, helper.make_node("Relu", ["first"], ["limited"], "relu"))
    nodes.append(helper.make_node("Add", ["third", "fourth"], ["y"], "add"))
    weights = [each for _, both in made for each in both]
    model = prepare(build(nodes, weights, {"x": [1, 3, 18, 18]}, {"y": [1, 32, 14, 14]}))
    _, called = operations(model)
    assert [name.rstrip("0123456789") for name in called[-1:]] == ["unpack"]
    assert len(called) == 5 and all("fused_packed" in name for name in called[:-1])


@pytest.mark.skipif(not X86, reason="these are x86 CPUs")
@pytest.mark.parametrize(("cpu", "block"), [("haswell", 8), ("skylake-avx512", 16)])
def test_as_many_channels_are_packed_as_a_vector_holds(cpu: str, block: int) -> None:
    conv, weights = convolution("x", "y", [32, 3, 1, 1])
    model = prepare(build([conv], weights, {"x": [1, 3, 7, 7]}, {"y": [1, 32, 7, 7]}))
    text, called = operations(model, cpu)
    assert len(called) == 2
    assert f"T.vectorized(T.int64({block}))" in text


def test_channels_that_fill_no_vector_stay_as_they_are() -> None:
    conv, weights = convolution("x", "y", [10, 3, 1, 1])
    model = prepare(build([conv], weights, {"x": [1, 3, 7, 7]}, {"y": [1, 10, 7, 7]}))
    assert "pack" not in "".join(operations(model)[1])
