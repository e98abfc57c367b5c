"""How many bytes layers take in a model's file if they are coded."""

import math
from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.codebooks import frequencies
from seqto.graph.grids import entropy, on_grid
from seqto.graph.layers import reduced_axes, weights_of
from seqto.graph.nodes import initializers
from seqto.graph.weights import bias_of
from seqto.types import Layer, Model

_OVER_ENTROPY = 1.02
"""How many times its own entropy a layer takes in a code that it shares with others."""

_NAMES_BYTES = 200
"""About how many bytes the names, nodes and shapes of a coded weight take."""

_FUNCTIONS_BYTES = 2400
"""About how many bytes the functions take, which all coded weights share."""

_STREAM_SHARE, _STREAM_BYTES = 0.015, 3000
"""How much of the weights' bytes the nodes of streams take besides, and at most how many bytes."""

_SAMPLE = 2**18
"""The entropy is that of about so many values of a weight."""


def coded_sizes(model: Model, layers: Collection[Layer], step: float) -> dict[str, int]:
    """Return about how many bytes each layer takes, its share of what all have in common included.

    `step` is that of the weights, in units of their row's RMS.
    """
    graph = model.proto.graph
    constants = initializers(graph)
    nodes = {node.name: node for node in graph.node}
    sizes = {}
    for layer in layers:
        node = nodes[layer.name]
        weights = weights_of(node, constants)
        size = sum(_weight_bytes(each, reduced_axes(node, each), step) for each in weights)
        sizes[layer.name] = size - _saved_by_bias(node, constants)
    common = _FUNCTIONS_BYTES + min(_STREAM_SHARE * sum(sizes.values()), _STREAM_BYTES)
    return {name: round(size + common / len(sizes)) for name, size in sizes.items()}


def _saved_by_bias(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> float:
    """Return the bytes by which a bias is smaller in float16; with coarse weights that counts."""
    bias = bias_of(node, constants)
    return 0 if bias is None else 2 * math.prod(bias.dims)


def _weight_bytes(weight: onnx.TensorProto, reduced: tuple[int, ...], step: float) -> float:
    values = numpy_helper.to_array(weight)
    rows = values.size / max(np.prod([values.shape[axis] for axis in reduced]), 1)
    # Values that are not finite are refused when they are coded.
    sample = np.nan_to_num(_some_rows(values, reduced), posinf=0, neginf=0)
    bits = entropy(frequencies(on_grid(sample, reduced, step).integers))
    return float(_OVER_ENTROPY * bits * values.size / 8 + rows + _NAMES_BYTES)


def _some_rows(values: np.ndarray, reduced: tuple[int, ...]) -> np.ndarray:
    """Return whole rows of a weight, evenly spread, of few values."""
    axes = [axis for axis in range(values.ndim) if axis not in reduced]
    if not axes or values.size <= _SAMPLE:
        return values
    axis = max(axes, key=lambda each: values.shape[each])
    every = min(-(-values.size // _SAMPLE), values.shape[axis])
    return values[(slice(None),) * axis + (slice(None, None, every),)]
