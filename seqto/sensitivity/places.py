"""Where the inputs and outputs of layers are found in the float and in a quantized model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnxruntime.quantization.quant_utils import QUANT_INPUT_SUFFIX

from seqto.graph.clamps import bounds_behind
from seqto.graph.inner import dequantized, first_output
from seqto.graph.links import Links
from seqto.graph.load import input_specs
from seqto.sensitivity.taps import Taps
from seqto.types import Arrays, Layer, Model


@dataclass(frozen=True)
class Place:
    """Where a tensor is found in the float model and in the quantized one."""

    floating: str
    quantized: str


@dataclass(frozen=True)
class Places:
    """Where a layer's input and output are found.

    `raw` is what the quantized layer writes, before it is rounded. A Relu or Clip behind the layer
    is taken for a part of it: `bounds` are what it bounds the output to.
    """

    given: Place
    made: Place
    raw: str
    bounds: tuple[float, float]

    def bounded(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the layer's output as the Relu or Clip behind it leaves them."""
        return np.clip(values, *self.bounds) if values.dtype.kind == "f" else values


def places_of(model: Model, quantized: Model, layers: Sequence[Layer]) -> dict[str, Places]:
    """Return where the layers' inputs and outputs are found in both models."""
    given, links = Links(model.proto.graph), Links(quantized.proto.graph)
    floats = {node.name: node for node in given.nodes}
    # A layer that became other operations is gone, but its tensors keep their names.
    nodes = floats | {node.name: node for node in links.nodes}
    found = {}
    for layer in layers:
        before, after = floats[layer.name], nodes[layer.name]
        position = next(at for at, name in enumerate(before.input) if name not in given.constants)
        made = first_output(after)
        found[layer.name] = Places(
            Place(before.input[position], after.input[position]),
            # Where ORT removes a Relu, the layer writes the Relu's output, named as in float.
            Place(made.removesuffix(QUANT_INPUT_SUFFIX), dequantized(links, made) or made),
            made,
            bounds_behind(model.proto.graph, given, before),
        )
    return found


class InnerTensors:
    """Returns inner tensors of a model; its inputs count as such."""

    def __init__(self, model: Model, names: set[str], folded: bool = False) -> None:
        inputs = {spec.name for spec in input_specs(model)}
        self._taps = Taps(model, sorted(names - inputs), folded)

    def run(self, inputs: Arrays) -> Arrays:
        """Return the tensors for these samples, by name."""
        return {**inputs, **self._taps.run(inputs)}
