"""Candidates that hold no memory of what was deleted from them."""

import numpy as np
from onnx import helper, numpy_helper

from seqto.graph.files import compact


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
