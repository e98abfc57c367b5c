"""How coarse the stored forms of layers are: their steps, in units of the RMS of the weights.

The errors of a layer's outputs are in proportion to its step, whatever the precision. So what one
precision does to a layer tells what the others do.
"""

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.coded_sizes import some_rows
from seqto.graph.layers import reduced_axes, weights_of
from seqto.graph.packing import HALF, rounded
from seqto.types import CODED_STEPS, FLOAT16

_HALF_STEP = 2.0**-11
"""About the step of float16: its errors are in proportion to each value."""


def relative_steps(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    precisions: Collection[str],
    block: int,
) -> dict[str, float]:
    """Return the step of a layer in each of these precisions that store its weights.

    float16 has none where it cannot hold all of them.
    """
    known = {name: step for name, step in CODED_STEPS.items() if name in precisions}
    tensors = weights_of(node, constants)
    if FLOAT16 in precisions and all(map(_fits_half, tensors)):
        known[FLOAT16] = _HALF_STEP
    weights = [
        (_sample(each, reduced_axes(node, each)), reduced_axes(node, each)) for each in tensors
    ]
    energy = sum(float(np.square(values, dtype=np.float64).sum()) for values, _ in weights)
    rounded_ones = [each for each in precisions if each not in CODED_STEPS and each != FLOAT16]
    for precision in rounded_ones:
        if energy > 0:
            scales = [rounded(values, precision, axes, block).scales for values, axes in weights]
            squares = sum(float(np.square(each, dtype=np.float64).sum()) for each in scales)
            known[precision] = float(np.sqrt(squares / energy))
    return known


def _fits_half(weight: onnx.TensorProto) -> bool:
    return bool(np.abs(numpy_helper.to_array(weight)).max(initial=0) <= HALF.max)


def _sample(weight: onnx.TensorProto, reduced: tuple[int, ...]) -> np.ndarray:
    values = some_rows(numpy_helper.to_array(weight), reduced)
    return np.asarray(np.nan_to_num(values, posinf=0, neginf=0))
