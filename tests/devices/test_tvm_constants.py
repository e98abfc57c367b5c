"""Constants of TVM modules are computed before anything is compiled."""

import numpy as np
from onnx import helper, numpy_helper
from onnx_models import build, weight

from seqto.devices import tvm_compile
from seqto.devices.tvm_constants import folding_pass
from seqto.graph.prepare import prepare


def test_nothing_of_what_the_importer_leaves_is_compiled() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"),
        helper.make_node("Clip", ["c", "none", "six"], ["l"], "clip"),
        helper.make_node("Flatten", ["l"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "v"], ["y"], "dense", transB=1),
    ]
    limits = {"none": 0.0, "six": 6.0}
    weights = [weight("w", 8, 3, 1, 1), weight("b", 8), weight("v", 5, 32)]
    weights += [numpy_helper.from_array(np.float32(value), name) for name, value in limits.items()]
    model = prepare(build(nodes, weights, {"x": [1, 3, 2, 2]}, {"y": [1, 5]}))
    imported = tvm_compile._imported(model, "tvm")
    folded = str(folding_pass()(imported))
    for operation in ("isnan", "where", "permute_dims"):
        assert f"R.{operation}" in str(imported) and f"R.{operation}" not in folded
    assert str(imported).count("R.reshape") > folded.count("R.reshape")
