"""Biases of Gemm are flat in a prepared model, which computes the same."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import feeds, node_names, row_bias, run
from quantizable_models import random_samples
from suite_quantizers import Prepared

from seqto.graph.biases import flatten_biases
from seqto.graph.nodes import initializers
from seqto.graph.prepare import prepare
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model

SHARED = pytest.mark.parametrize("shared", [False, True])


def biases(model: Model) -> dict[str, list[int]]:
    """Return the shape of each Gemm's bias."""
    constants = initializers(model.proto.graph)
    gemms = [node for node in model.proto.graph.node if node.op_type == "Gemm"]
    return {node.name: list(constants[node.input[2]].dims) for node in gemms}


@SHARED
def test_biases_are_flat_and_outputs_the_same(shared: bool) -> None:
    model = row_bias(shared=shared)
    flat = Model(model.name, model.copy_proto())
    flatten_biases(flat.proto.graph)
    onnx.checker.check_model(flat.proto, full_check=True)
    assert set(map(tuple, biases(flat).values())) == {(4,)}
    assert len(flat.proto.graph.initializer) == 3 + shared, "a copy only if others read it"
    for before, after in zip(run(model, feeds(model)), run(flat, feeds(model)), strict=True):
        np.testing.assert_array_equal(after, before)


def test_what_the_graph_says_of_its_shape_is_deleted() -> None:
    graph = row_bias().proto.graph
    graph.value_info.append(helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 4]))
    flatten_biases(graph)
    assert not graph.value_info


def test_a_bias_that_the_graph_returns_keeps_its_shape() -> None:
    model = row_bias()
    model.proto.graph.output.append(
        helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 4])
    )
    flatten_biases(model.proto.graph)
    assert run(model, feeds(model))[1].shape == (1, 4)
    assert biases(model) == {"fc": [4], "head": [4]}


@SHARED
@pytest.mark.parametrize("quantize_bias", [False, True])
def test_every_candidate_can_be_quantized_per_channel(shared: bool, quantize_bias: bool) -> None:
    floating = prepare(row_bias(shared=shared))
    quantizer = StaticQuantizer(per_channel=True, quantize_bias=quantize_bias)
    prepared = Prepared(quantizer, floating, random_samples(floating))
    expected = run(floating, prepared.inputs)
    np.testing.assert_allclose(
        expected[0], run(row_bias(shared=shared), prepared.inputs)[0], rtol=1e-5, atol=1e-6
    )
    assert {"fc", "head"} <= set(node_names(floating))
    for count in range(len(prepared.names) + 1):
        for excluded in itertools.combinations(prepared.names, count):
            found = run(prepared.excluding(*excluded), prepared.inputs)
            for before, after in zip(expected, found, strict=True):
                np.testing.assert_allclose(after, before, atol=0.1)
