"""How many bytes layers take in a model's file if they are coded."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.codebooks import frequencies
from seqto.graph.grids import entropy, on_grid
from seqto.graph.layers import reduced_axes, weights_of
from seqto.graph.nodes import initializers
from seqto.graph.weights import bias_of
from seqto.types import CODED_STEPS, Layer, Model

OVER_ENTROPY = 1.02
"""How many times its own entropy a layer takes in a code that it shares with others."""

_NAMES_BYTES = 200
"""About how many bytes the names, nodes and shapes of a coded weight take."""

_FUNCTIONS_BYTES = 2400
"""About how many bytes the functions take, which all coded weights share."""

_STREAM_SHARE, _STREAM_BYTES = 0.015, 3000
"""How much of the weights' bytes the nodes of streams take besides, and at most how many bytes."""

_SAMPLE = 2**16
"""The entropy is that of about so many values of a weight."""


def coded_sizes(model: Model, layers: Sequence[Layer]) -> dict[str, dict[str, int]]:
    """Return about how many bytes each layer takes in each precision of coded weights.

    That includes its share of what all layers have in common.
    """
    graph = model.proto.graph
    constants = initializers(graph)
    nodes = {node.name: node for node in graph.node}
    each = [_layer_bytes(nodes[layer.name], constants) for layer in layers]
    whole = np.array(each) if each else np.zeros((0, len(CODED_STEPS)))
    common = _FUNCTIONS_BYTES + np.minimum(_STREAM_SHARE * whole.sum(axis=0), _STREAM_BYTES)
    sizes = np.rint(whole + common / max(len(whole), 1)).astype(int).tolist()
    return {
        layer.name: dict(zip(CODED_STEPS, row, strict=True))
        for layer, row in zip(layers, sizes, strict=True)
    }


def _layer_bytes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> np.ndarray:
    weights = weights_of(node, constants)
    sizes = [_weight_bytes(each, reduced_axes(node, each)) for each in weights]
    return np.asarray(np.sum(sizes, axis=0) - _saved_by_bias(node, constants))


def _saved_by_bias(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> float:
    """Return the bytes by which a bias is smaller in float16; with coarse weights that counts."""
    bias = bias_of(node, constants)
    return 0 if bias is None else 2 * math.prod(bias.dims)


def _weight_bytes(weight: onnx.TensorProto, reduced: tuple[int, ...]) -> np.ndarray:
    values = numpy_helper.to_array(weight)
    rows = values.size / max(np.prod([values.shape[axis] for axis in reduced]), 1)
    # Values that are not finite are refused when they are coded.
    sample = np.nan_to_num(some_rows(values, reduced), posinf=0, neginf=0)
    # In units of their row's RMS, so that the rows need not be scaled again for each step.
    units = on_grid(sample, reduced, 1.0).scales
    relative = sample / np.where(units > 0, units, np.float32(np.inf))
    bits = [
        entropy(frequencies(np.rint(relative / np.float32(step)).astype(np.int32)))
        for step in CODED_STEPS.values()
    ]
    return np.asarray(OVER_ENTROPY * np.array(bits) * values.size / 8 + rows + _NAMES_BYTES)


def some_rows(values: np.ndarray, reduced: tuple[int, ...]) -> np.ndarray:
    """Return whole rows of a weight, evenly spread, of few values."""
    axes = [axis for axis in range(values.ndim) if axis not in reduced]
    if not axes or values.size <= _SAMPLE:
        return values
    axis = max(axes, key=lambda each: values.shape[each])
    every = min(-(-values.size // _SAMPLE), values.shape[axis])
    return values[(slice(None),) * axis + (slice(None, None, every),)]
