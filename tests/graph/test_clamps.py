"""The bounds of Relus and Clips behind a layer."""

import math

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper
from onnx_models import build, weight

from seqto.graph.clamps import bounds_behind
from seqto.graph.links import Links
from seqto.types import Model

LIMITS = {"zero": 0.0, "one": 1.0, "three": 3.0, "six": 6.0}


def behind(*clamps: NodeProto, output: str = "y") -> tuple[float, float]:
    """Return the bounds of the Conv `conv`, which writes `c`, with these nodes behind it."""
    model = with_clamps(*clamps, output=output)
    graph = model.proto.graph
    return bounds_behind(graph, Links(graph), graph.node[0])


def with_clamps(*clamps: NodeProto, output: str) -> Model:
    conv = helper.make_node("Conv", ["x", "w"], ["c"], "conv")
    weights = [numpy_helper.from_array(np.float32(each), name) for name, each in LIMITS.items()]
    shape = ["N", 2, 4, 4]
    outputs = {output: shape}
    return build([conv, *clamps], [weight("w", 2, 2, 1, 1), *weights], {"x": shape}, outputs)


def clip(*limits: str, given: str = "c", made: str = "y") -> NodeProto:
    return helper.make_node("Clip", [given, *limits], [made])


RELU = helper.make_node("Relu", ["c"], ["y"])


@pytest.mark.parametrize(
    ("clamps", "bounds"),
    [
        ([RELU], (0, math.inf)),
        ([clip("zero", "six")], (0, 6)),
        ([clip("zero")], (0, math.inf)),
        ([clip("", "six")], (-math.inf, 6)),
        ([clip()], (-math.inf, math.inf)),
        ([helper.make_node("Sigmoid", ["c"], ["y"])], (-math.inf, math.inf)),
        ([clip("zero", "six", made="d"), clip("one", "three", given="d")], (1, 3)),
        ([clip("zero", "one", made="d"), clip("three", "six", given="d")], (3, 3)),
    ],
)
def test_bounds_are_those_of_all_clamps(clamps: list[NodeProto], bounds: tuple[float, ...]) -> None:
    assert behind(*clamps) == bounds


def test_a_clamp_that_is_not_alone_does_not_count() -> None:
    other = helper.make_node("Neg", ["c"], ["n"])
    assert behind(RELU, other) == (-math.inf, math.inf)
    assert behind(RELU, output="c") == (-math.inf, math.inf)


def test_computed_bounds_do_not_count() -> None:
    maximum = helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)
    assert behind(maximum, clip("zero", "most")) == (-math.inf, math.inf)
