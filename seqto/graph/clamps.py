"""Relu and Clip behind a layer, which ONNX Runtime makes a part of the quantized layer."""

import math

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.inner import first_output
from seqto.graph.links import Links

CLAMPS = ("Relu", "Clip")
"""Operations that ONNX Runtime makes a part of the quantized layer before them."""

FREE = (-math.inf, math.inf)
"""The bounds of a layer without a clamp behind it."""


def bounds_behind(
    graph: onnx.GraphProto, links: Links, node: onnx.NodeProto
) -> tuple[float, float]:
    """Return what the Relus and Clips behind this node bound its output to.

    Only those that alone read the output count; bounds that are computed do not.
    """
    low, high = FREE
    values = {each.name: each for each in graph.initializer}
    while (clamp := _next(links, first_output(node))) is not None:
        limits = _limits(clamp, values)
        if limits is None:
            break
        low, high = (float(np.clip(each, *limits)) for each in (low, high))
        node = clamp
    return low, high


def _next(links: Links, tensor: str) -> onnx.NodeProto | None:
    """Return the clamp that alone reads this tensor."""
    readers = links.readers(tensor)
    if tensor in links.outputs or len(readers) != 1 or readers[0].op_type not in CLAMPS:
        return None
    return readers[0]


def _limits(
    clamp: onnx.NodeProto, values: dict[str, onnx.TensorProto]
) -> tuple[float, float] | None:
    """Return the bounds of a Relu or Clip; None if they are not constant."""
    if clamp.op_type == "Relu":
        return 0.0, math.inf
    given = [*clamp.input[1:], "", ""][:2]
    if any(name and name not in values for name in given):
        return None
    low, high = (
        float(numpy_helper.to_array(values[name]).reshape(())) if name else free
        for name, free in zip(given, FREE, strict=True)
    )
    return low, high
