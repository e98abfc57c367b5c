"""Rounded weights as plain floats: what stored weights are once they are unpacked.

Such a model computes what the smaller file computes, bit for bit, and is made and loaded in a
fraction of the time.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.layers import reduced_axes
from seqto.graph.links import drop_unused
from seqto.graph.nodes import initializers, tensor_names, unused_name
from seqto.graph.packing import Rounded, rounded
from seqto.graph.weights import BIAS, Choose, bias_of, layers_with_weights, position_of
from seqto.types import FLOAT16, FLOAT32


def store_plainly(
    proto: onnx.ModelProto, precisions: Mapping[str, str], block: int, choose: Choose
) -> None:
    """Replace the weights of these layers by what they are after being stored."""
    constants = initializers(proto.graph)
    rounding = _Rounding(proto.graph, constants, block)
    for node, weights in layers_with_weights(proto.graph, constants, precisions):
        precision = precisions[node.name]
        for weight in weights if precision != FLOAT32 else ():
            chosen = None if precision == FLOAT16 else choose(node.name, precision)
            reduced = reduced_axes(node, weight)
            rounding.replace(node, position_of(node, weight), precision, reduced, chosen)
            bias = bias_of(node, constants)
            if bias is not None:
                rounding.replace(node, BIAS, FLOAT16)
    rounding.finish()


class _Rounding:
    """Replaces the constants of a graph's nodes by rounded ones."""

    def __init__(
        self, graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], block: int
    ) -> None:
        self._graph, self._constants, self._block = graph, constants, block
        self._taken = tensor_names(graph)
        self._made: dict[tuple[object, ...], str] = {}

    def replace(
        self,
        node: onnx.NodeProto,
        at: int,
        precision: str,
        reduced: tuple[int, ...] = (),
        chosen: np.ndarray | None = None,
    ) -> None:
        """Let the node read this input as it is in this precision."""
        tensor = self._constants[node.input[at]]
        key = (tensor.name, precision, reduced)
        if key not in self._made:
            values = np.asarray(numpy_helper.to_array(tensor))
            name = unused_name(f"{tensor.name}_{precision}", self._taken)
            plain = self._plain(values, precision, reduced, chosen).astype(values.dtype)
            self._graph.initializer.append(numpy_helper.from_array(plain, name))
            self._taken.add(name)
            self._made[key] = name
        node.input[at] = self._made[key]

    def finish(self) -> None:
        """Delete what nothing reads any more."""
        drop_unused(self._graph, {str(name) for name, *_ in self._made})

    def _plain(
        self,
        values: np.ndarray,
        precision: str,
        reduced: tuple[int, ...],
        chosen: np.ndarray | None,
    ) -> np.ndarray:
        if precision == FLOAT16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16)
        nearest = rounded(values, precision, reduced, self._block)
        return (nearest if chosen is None else Rounded(chosen, nearest.scales)).values
