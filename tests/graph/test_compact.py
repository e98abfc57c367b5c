"""Candidates that hold no memory of what was deleted from them."""

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import run

from seqto.graph.coded_weights import CodedWeight, code_weights
from seqto.graph.files import compact
from seqto.graph.grids import on_grid
from seqto.types import Model


def test_shapes_are_gone_and_the_rest_is_the_same() -> None:
    proto = helper.make_model(helper.make_graph([], "g", [], []))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(3), "kept"))
    proto.graph.value_info.append(helper.make_tensor_value_info("x", 1, [1]))
    for brief in (False, True):
        made = compact(proto, brief=brief)
        assert not made.graph.value_info
        assert [each.name for each in made.graph.initializer] == ["kept"]
        # A message keeps the memory of what was deleted from it: only a copy is without.
        assert (made is proto) == brief


def test_models_with_coded_weights_have_short_names_inside() -> None:
    random = np.random.RandomState(0)
    integers = random.randint(-3, 4, (64, 64))
    weight = CodedWeight("a_long_name", on_grid(integers, (1,), 0.5), onnx.TensorProto.FLOAT)
    node = helper.make_node("MatMul", ["x", "a_long_name"], ["y"], "a_layer")
    values = [helper.make_tensor_value_info(name, 1, [1, 64]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    code_weights(proto, [weight])
    given = {"x": random.randn(1, 64).astype(np.float32)}
    (before,) = run(Model("long", proto), given)
    # What is of use only briefly keeps the names by which it is compared with others.
    assert compact(proto, brief=True).graph.node[-1].input[1] == "a_long_name"
    made = compact(proto)
    assert made.graph.node[-1].name == "a_layer" and len(made.graph.node[-1].input[1]) <= 2
    np.testing.assert_array_equal(run(Model("short", made), given)[0], before)
