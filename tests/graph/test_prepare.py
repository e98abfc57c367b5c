"""Prepared models compute the same, fold what can be folded, and keep their names."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import (
    build,
    conv_bn_relu,
    feeds,
    gemm_model,
    matmul_add,
    node_names,
    old_model,
    op_types,
    residual,
    row_bias,
    run,
    unnamed,
    weight,
)
from real_data import EFFICIENTNET_LITE0, requires_real_data
from transformer_models import vit

from seqto.errors import ModelError
from seqto.graph.layers import weight_layers
from seqto.graph.load import input_specs, load_model
from seqto.graph.prepare import name_nodes, prepare, require_folded
from seqto.types import Model

ANY_MODEL = pytest.mark.parametrize(
    "make", [conv_bn_relu, residual, old_model, unnamed, gemm_model, matmul_add, row_bias]
)


@ANY_MODEL
def test_outputs_stay_the_same(make) -> None:
    model = make()
    inputs = feeds(model)
    for before, after in zip(run(model, inputs), run(prepare(model), inputs), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@ANY_MODEL
def test_same_bytes_each_time_and_argument_untouched(make) -> None:
    model = make()
    given = model.to_bytes()
    assert prepare(model).to_bytes() == prepare(model).to_bytes()
    assert model.to_bytes() == given


@ANY_MODEL
def test_result_can_be_quantized(make) -> None:
    prepared = prepare(make())
    onnx.checker.check_model(prepared.proto, full_check=True)
    (opset,) = prepared.proto.opset_import
    assert (opset.domain, opset.version >= 13) == ("", True)
    names = node_names(prepared)
    assert all(names) and len(set(names)) == len(names)
    known = {each.name for each in (*prepared.proto.graph.value_info, *prepared.proto.graph.output)}
    assert {name for node in prepared.proto.graph.node for name in node.output} <= known


def test_same_bytes_in_another_process() -> None:
    # Hash seeds differ there: what ONNX Runtime or Python keeps in sets could change order.
    script = (
        "import hashlib, onnx_models as m; from seqto.graph.prepare import prepare;"
        "print(hashlib.sha256(prepare(m.old_model()).to_bytes()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "tests")])
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert found == hashlib.sha256(prepare(old_model()).to_bytes()).hexdigest()


def test_batch_normalization_is_folded_into_the_layer_of_its_name() -> None:
    prepared = prepare(conv_bn_relu())
    assert op_types(prepared) == ["Conv", "Relu"]
    assert node_names(prepared) == ["conv", "relu"]


def test_names_of_all_surviving_layers_stay() -> None:
    prepared = prepare(residual())
    layers = weight_layers(prepared, {"Conv", "Gemm"})
    assert [layer.name for layer in layers] == ["stem", "left", "right", "head"]


def test_unnamed_nodes_are_named_and_given_names_survive() -> None:
    prepared = prepare(unnamed())
    assert node_names(prepared) == ["Conv_0", "Relu_1_1", "Relu_1", "Relu_3"]
    assert op_types(prepared)[2] == "Conv"


def test_numbers_in_names_count_the_nodes_of_the_users_file() -> None:
    model = old_model()
    for node in model.proto.graph.node:
        node.name = ""
    # The conversion of the Dropout and the Clip puts nodes before the Gemm.
    assert {"Conv_0", "Gemm_5"} <= set(node_names(prepare(model)))


def test_the_first_of_equal_names_keeps_it() -> None:
    graph = residual().proto.graph
    for node, name in zip(graph.node, ["a", "a", "b", "a", "a_1"], strict=False):
        node.name = name
    name_nodes(graph)
    assert [node.name for node in graph.node][:5] == ["a", "a_2", "b", "a_3", "a_1"]


def test_old_model_is_brought_up_to_date() -> None:
    prepared = prepare(old_model())
    assert [each.name for each in prepared.proto.graph.input] == ["x"]
    assert prepared.proto.opset_import[0].version == 13
    assert prepared.proto.ir_version >= 7
    assert {"conv", "fc"} <= set(node_names(prepared))
    assert "BatchNormalization" not in op_types(prepared)


def test_later_opsets_stay() -> None:
    assert prepare(residual()).proto.opset_import[0].version == 17


@pytest.mark.parametrize("shape", [("N", 6), (2, 3, 6)])
def test_fused_matmul_gets_its_name_back(shape) -> None:
    prepared = prepare(matmul_add(shape))
    (layer,) = weight_layers(prepared, {"Gemm", "MatMul"})
    assert (layer.name, layer.op_type) == ("fc", "Gemm")


@pytest.mark.parametrize(
    ("types", "fused"),
    [(("MatMul", "BatchNormalization"), "Gemm"), (("Gemm", "Sum"), "Gemm")],
)
def test_other_fusions_give_the_name_back(types, fused) -> None:
    first, second = types
    more = ["s", "b", "m", "v"] if second == "BatchNormalization" else ["s"]
    nodes = [
        helper.make_node(first, ["x", "w"], ["a"], "fc"),
        helper.make_node(second, ["a", *more], ["y"], "after"),
    ]
    positive = [numpy_helper.from_array(np.full(4, 0.7, np.float32), name) for name in more]
    model = build(nodes, [weight("w", 6, 4), *positive], {"x": ["N", 6]}, {"y": ["N", 4]})
    assert [(n.name, n.op_type) for n in prepare(model).proto.graph.node] == [("fc", fused)]


def test_names_that_a_session_gives_to_fused_layers_are_free() -> None:
    # Its own optimized model has the names that ONNX Runtime gives again when it fuses more.
    once = prepare(vit(like_bert=True))
    twice = prepare(once)
    for model in (once, twice):
        names = [*node_names(model), *(each.name for each in model.proto.graph.initializer)]
        assert any(name.startswith("prepared_gemm_") for name in names), "or this is no test"
        assert not any(name.startswith("gemm_") for name in names)
        assert len(set(names)) == len(names)
    inputs = feeds(once, 1)
    np.testing.assert_array_equal(run(twice, inputs)[0], run(once, inputs)[0])


def test_weights_in_constant_nodes_become_initializers() -> None:
    model = residual()
    tensors = list(model.proto.graph.initializer)
    del model.proto.graph.initializer[:]
    for index, tensor in enumerate(tensors):
        constant = helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.proto.graph.node.insert(index, constant)
    assert len(weight_layers(prepare(model), {"Conv", "Gemm"})) == 4


def test_nothing_is_written_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    model = residual()
    model.proto.graph.initializer.append(weight("unused", 3))
    prepare(model)
    with pytest.raises(ModelError):
        prepare(_unrunnable())
    assert [each.name for each in tmp_path.rglob("*")] == ["temporary"]
    assert capfd.readouterr() == ("", "")


def test_model_that_cannot_run_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="Model broken cannot be prepared.*Nonsense") as caught:
        prepare(_unrunnable())
    assert not any(noise in str(caught.value) for noise in ("\n", "ONNXRuntimeError", "given.onnx"))
    assert not caplog.records


def test_model_that_cannot_be_converted_says_why() -> None:
    model = old_model(opset=8)
    model.proto.graph.node[0].op_type = "Nonsense"
    with pytest.raises(ModelError, match="from opset 8 to 13.*export it again") as caught:
        prepare(model)
    assert "\n" not in str(caught.value)


def test_batch_normalization_that_was_not_folded_is_noticed() -> None:
    with pytest.raises(ModelError, match="'norm' was not folded into 'conv'"):
        require_folded(conv_bn_relu().proto.graph, "any")


def test_preparation_that_does_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqto.graph.prepare.folded_small", lambda proto, folder: proto)
    with pytest.raises(ModelError, match="was not folded"):
        prepare(conv_bn_relu())


def test_batch_normalization_that_cannot_be_folded_is_let_pass() -> None:
    model = conv_bn_relu()
    # A second reader of what the convolution gives.
    model.proto.graph.node.append(helper.make_node("Relu", ["a"], ["z"], "other"))
    model.proto.graph.output.append(helper.make_tensor_value_info("z", 1, ["N", 4, 8, 8]))
    assert "BatchNormalization" in op_types(prepare(model))


@requires_real_data
def test_efficientnet_keeps_its_layers_and_its_outputs() -> None:
    model = load_model(EFFICIENTNET_LITE0, "efficientnet-lite0")
    prepared = prepare(model)
    layers = weight_layers(prepared, {"Conv", "Gemm"})
    assert [layer.op_type for layer in layers] == ["Conv"] * 49 + ["Gemm"]
    assert {layer.name for layer in layers} <= set(node_names(model))
    assert input_specs(prepared) == input_specs(model)
    assert set(op_types(prepared)) <= {
        "Conv",
        "Clip",
        "Add",
        "GlobalAveragePool",
        "Reshape",
        "Gemm",
    }
    inputs = feeds(model)
    np.testing.assert_allclose(run(prepared, inputs)[0], run(model, inputs)[0], atol=1e-4)


def _unrunnable() -> Model:
    nodes = [helper.make_node("Nonsense", ["x"], ["y"], "what")]
    return build(nodes, [], {"x": ["N", 3]}, {"y": ["N", 3]}, name="broken")
