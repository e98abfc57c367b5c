"""Codes the 8-bit weights that layers run in, so that files are smaller at the same speed.

Expects a model with QDQ pairs, of opset 21 or later. ONNX Runtime decodes the integers when it
loads the model, and then fuses the pairs as it would have fused them: what runs is the same.
"""

import math
from collections.abc import Collection, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from seqto.graph.codebooks import frequencies
from seqto.graph.coded_sizes import OVER_ENTROPY
from seqto.graph.coded_weights import CodedIntegers, code_weights
from seqto.graph.grids import entropy
from seqto.graph.layers import weights_of
from seqto.graph.nodes import initializers
from seqto.types import Model

_KINDS = (TensorProto.INT8, TensorProto.UINT8)

_NAMES_BYTES = 300
"""About how many bytes the nodes of coded integers take."""

_COMMON_BYTES = 8000
"""About how many bytes the functions and the nodes of streams take."""


def may_be_coded(model: Model, layers: Collection[str]) -> bool:
    """Tell whether the weights of these layers are large enough for coding to save anything."""
    constants = initializers(model.proto.graph)
    sizes = (
        math.prod(weight.dims)
        for node in model.proto.graph.node
        if node.name in layers
        for weight in weights_of(node, constants)
    )
    # Even half of them would hardly be saved.
    return bool(sum(sizes) > 2 * _COMMON_BYTES)


def code_integers(proto: onnx.ModelProto) -> None:
    """Code the constants that are dequantized, except small ones; none if that saves nothing."""
    found = {each.name: each for each in _dequantized(proto.graph)}
    weights = {name: numpy_helper.to_array(each) for name, each in found.items()}
    saved = {name: _saved(values) for name, values in weights.items()}
    worth = {name for name, each in saved.items() if each > 0}
    if sum(saved[name] for name in worth) <= _COMMON_BYTES:
        return
    coded = [
        CodedIntegers(name, weights[name], each.data_type)
        for name, each in found.items()
        if name in worth
    ]
    # From the end, so that large weights are not copied.
    for at in reversed(range(len(proto.graph.initializer))):
        if proto.graph.initializer[at].name in worth:
            del proto.graph.initializer[at]
    code_weights(proto, coded)


def _dequantized(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield copies of the 8-bit constants that are dequantized, once each."""
    constants = initializers(graph)
    given = {each.name for each in graph.input}
    read = [node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"]
    for name in dict.fromkeys(read):
        # What may be given another value is no constant.
        if name in constants and name not in given and constants[name].data_type in _KINDS:
            yield onnx.TensorProto.FromString(constants[name].SerializeToString())


def _saved(values: np.ndarray) -> float:
    """Return about how many bytes of a file coding these integers saves."""
    bits = OVER_ENTROPY * entropy(frequencies(values))
    return values.size * (1 - bits / 8) - _NAMES_BYTES
