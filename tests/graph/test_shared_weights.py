"""Shared int8 weights load on CPUs whose exact kernels make them unsigned."""

import numpy as np
import onnx
import pytest
from onnx_models import op_types, residual, run
from quantizable_models import random_samples, shared_weight
from suite_quantizers import Prepared

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.prepare import prepare
from seqto.graph.shared_weights import read_apart
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model


@pytest.mark.parametrize("excluded", [(), ("one",), ("two",)])
def test_shared_weights_load_with_exact_kernels(excluded: tuple[str, ...]) -> None:
    floating = prepare(shared_weight())
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    quantized = prepared.excluding(*excluded)
    onnx.checker.check_model(quantized.proto, full_check=True)
    exact = OnnxRuntimeDevice(precise_kernels="on").load(quantized)
    wanted = run(floating, prepared.inputs)[0]
    (found,) = exact.run(prepared.inputs)
    np.testing.assert_allclose(found, wanted, atol=0.1 * np.abs(wanted).max())


def test_the_values_are_stored_once() -> None:
    floating = prepare(shared_weight())
    quantized = Prepared(StaticQuantizer(), floating, random_samples(floating)).excluding()
    stored = [each for each in quantized.proto.graph.initializer if list(each.dims) == [4, 4, 1, 1]]
    assert [each.data_type for each in stored] == [onnx.TensorProto.INT8]
    assert op_types(quantized).count("Slice") == 1


def test_weights_with_one_reader_stay_as_they_are() -> None:
    floating = prepare(residual())
    quantized = Prepared(StaticQuantizer(), floating, random_samples(floating)).excluding()
    again = Model("again", quantized.copy_proto())
    read_apart(again.proto.graph)
    assert again.to_bytes() == quantized.to_bytes()
