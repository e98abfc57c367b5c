"""Stores the weights of single layers in fewer bits; they are unpacked when a session is created.

Expects layers whose weights are float initializers; leaves every activation in float. The rows of a
table (Gather) are unpacked when they are looked up, but a coded table is decoded as a whole.
"""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from seqto.errors import LayerError, QuantizationError
from seqto.graph.coded_weights import CodedWeight, code_weights
from seqto.graph.files import changed
from seqto.graph.grids import on_grid
from seqto.graph.layers import reduced_axes, weight_of, weights_of
from seqto.graph.links import drop_unused
from seqto.graph.load import first_line
from seqto.graph.nbits import (
    BITS,
    OPERATION,
    block_of,
    import_domain,
    pack_nbits,
    run_packed,
)
from seqto.graph.nodes import all_nodes, initializers, replace_nodes, tensor_names, unused_name
from seqto.graph.packing import HALF, LEVELS, Packed, PackedWeights, even_blocks, pack
from seqto.graph.tables import Lookup, is_lookup
from seqto.types import (
    CODED,
    CODED_STEPS,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    INT16,
    Layer,
    Model,
    listed,
)

INT4_OPSET = 21
"""The first opset with 4-bit tensors, and with 16-bit ones in QuantizeLinear."""

STORED = (*CODED_STEPS, INT4, INT8, INT16, FLOAT16)
"""The precisions that these functions store weights in."""

RAISED = frozenset({*CODED_STEPS, INT4})
"""Those of them that need this opset."""

Choose = Callable[[str, str], np.ndarray | None]
"""Returns the integers of a layer's weight in a precision, in the weight's form; None: rounded."""

BIAS = 2
"""Which input of a layer is its bias."""

_UNPACKING_BYTES = {FLOAT16: 150, INT8: 350, INT16: 350, INT4: 500}
"""About how many bytes the names, nodes and shapes of a stored weight take."""

_LOOKUP_BYTES = {FLOAT16: 150, INT8: 500, INT16: 500, INT4: 900}
"""About how many bytes the names, nodes and shapes of a stored table take."""


def store_float16(model: Model, layers: Collection[str]) -> Model:
    """Return the model with these layers' weights in float16."""
    return store(model, dict.fromkeys(layers, FLOAT16))


def store_int8(model: Model, layers: Collection[str]) -> Model:
    """Return the model with these weights in symmetric int8, one scale per output channel."""
    return store(model, dict.fromkeys(layers, INT8))


def store_int4(model: Model, layers: Collection[str], block: int) -> Model:
    """Return the model with these layers' weights in int4, without zero point, one scale per block.

    The values that an output sums over are cut into as few blocks of at most `block` values as
    possible, all of the same length.
    """
    return store(model, dict.fromkeys(layers, INT4), block)


def store(model: Model, precisions: Mapping[str, str], block: int = 32) -> Model:
    """Return the model with the weights of these layers in these precisions."""
    raised = at_opset(model, INT4_OPSET) if RAISED & {*precisions.values()} else model
    proto = raised.copy_proto()
    store_into(proto, precisions, block, {})
    return Model(model.name, proto)


def store_into(
    proto: onnx.ModelProto,
    precisions: Mapping[str, str],
    block: int,
    packed: PackedWeights,
    nbits: Collection[str] = (),
    choose: Choose = lambda layer, precision: None,
) -> None:
    """Change the weights of these layers to these precisions; `packed` is read and filled.

    The layers in `nbits` become MatMulNBits where their integers fill whole blocks. What `choose`
    returns is the same for layers that share a weight.
    """
    wrong = sorted(set(precisions.values()) - {*STORED, FLOAT32})
    if wrong:
        raise QuantizationError(
            f"weights cannot be stored as {', '.join(wrong)}: "
            f"choose from {listed(STORED)} and {FLOAT32}."
        )
    storing = _Storing(proto.graph, block, packed, choose)
    coding = _Coding(proto, choose)
    for node, weights in layers_with_weights(proto.graph, storing.constants, precisions):
        precision = precisions[node.name]
        runs_packed = node.name in nbits and precision in BITS
        for weight in weights:
            size = block_of(weight.dims[0], precision, block) if runs_packed else 0
            if precision in CODED_STEPS and 0 in weight.dims:
                # A weight without values stays as it is.
                continue
            if precision in CODED_STEPS:
                storing.read_decoded(node, weight, coding.output(node, weight, precision))
            elif size:
                storing.run_packed(node, weight, precision, size)
                import_domain(proto)
            else:
                storing.store(node, weight, precision)
    storing.finish()
    coding.finish()


class _Coding:
    """Collects the weights to be coded: they are coded together."""

    def __init__(self, proto: onnx.ModelProto, choose: Choose) -> None:
        self._proto = proto
        self._choose = choose
        self._taken = tensor_names(proto.graph)
        self._weights: dict[tuple[object, ...], CodedWeight] = {}

    def output(self, node: onnx.NodeProto, weight: onnx.TensorProto, precision: str) -> str:
        """Return the name that this layer's weight has once it is decoded."""
        reduced = reduced_axes(node, weight)
        key = (weight.name, reduced, precision)
        if key not in self._weights:
            name = unused_name(f"w{len(self._weights):x}", self._taken)
            self._taken.add(name)
            chosen = self._choose(node.name, precision)
            grid = on_grid(_finite(weight), reduced, CODED_STEPS[precision], chosen)
            self._weights[key] = CodedWeight(name, grid, weight.data_type)
        return self._weights[key].output

    def finish(self) -> None:
        """Add the streams and the nodes that decode them."""
        code_weights(self._proto, [*self._weights.values()])


def _finite(weight: onnx.TensorProto) -> np.ndarray:
    values = np.asarray(numpy_helper.to_array(weight))
    if not np.isfinite(values).all():
        raise QuantizationError(
            f"weight {weight.name!r} has values that are not finite numbers, which {CODED} cannot "
            f"hold. Choose {FLOAT32} for its layer."
        )
    return values


class _Storing:
    """Changes the weights of a graph's nodes one by one."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        block: int,
        packed: PackedWeights,
        choose: Choose,
    ) -> None:
        self._choose = choose
        self.constants = initializers(graph)
        self._graph = graph
        self._block = block
        self._packed = packed
        self._replaced: set[str] = set()
        self._unpacking: dict[str, Packed] = {}
        self._lookups: dict[str, Lookup] = {}

    def store(self, node: onnx.NodeProto, weight: onnx.TensorProto, precision: str) -> None:
        """Let the node read this weight in this precision."""
        found = self._in_precision(node, weight, precision)
        if found is None:
            return
        self._replaced.add(weight.name)
        if is_lookup(node):
            self._lookups[node.name] = Lookup(node, weight, found)
            return
        self._read(node, position_of(node, weight), found)
        self._store_bias(node)

    def read_decoded(self, node: onnx.NodeProto, weight: onnx.TensorProto, name: str) -> None:
        """Let the node read this weight under the name that it has once it is decoded."""
        self._replaced.add(weight.name)
        node.input[position_of(node, weight)] = name
        self._store_bias(node)

    def run_packed(
        self, node: onnx.NodeProto, weight: onnx.TensorProto, precision: str, block: int
    ) -> None:
        """Make a MatMul one that reads this weight in blocks of this precision."""
        key = (OPERATION, weight.name, precision, block)
        if key not in self._packed:
            name = unused_name(f"{weight.name}_{precision}_blocks", self.constants)
            # In int8 its blocks have other scales than a stored weight.
            chosen = self._choose(node.name, precision) if precision == INT4 else None
            self._packed[key] = pack_nbits(weight, name, precision, block, chosen)
        self._replaced.add(weight.name)
        self._unpacking[self._packed[key].values.name] = self._packed[key]
        run_packed(node, self._packed[key], precision, block)

    def finish(self) -> None:
        """Add the tensors and nodes that unpack the weights, and delete the float ones."""
        if not self._replaced:
            return
        graph = self._graph
        nodes = [each for found in self._unpacking.values() for each in found.nodes]
        tensors = {each.name: each for found in self._unpacking.values() for each in found.tensors}
        taken = tensor_names(graph) if self._lookups else set()
        for node in graph.node:
            lookup = self._lookups.get(node.name)
            if lookup is None:
                nodes.append(node)
            else:
                unpacked = lookup.unpacked(taken)
                nodes += unpacked.nodes
                tensors |= {each.name: each for each in unpacked.tensors}
        graph.initializer.extend(tensors.values())
        replace_nodes(graph, nodes)
        drop_unused(graph, self._replaced)

    def _read(self, node: onnx.NodeProto, at: int, found: Packed) -> None:
        self._unpacking[found.output] = found
        node.input[at] = found.output

    def _store_bias(self, node: onnx.NodeProto) -> None:
        bias = bias_of(node, self.constants)
        if bias is not None:
            # Next to weights this coarse, float16 is precise enough for a bias.
            short = self._in_precision(node, bias, FLOAT16)
            assert short is not None
            self._replaced.add(bias.name)
            self._read(node, BIAS, short)

    def _in_precision(
        self, node: onnx.NodeProto, weight: onnx.TensorProto, precision: str
    ) -> Packed | None:
        """Return the packed weight of a layer, or None if it has this precision already."""
        same = (precision, weight.data_type) == (FLOAT16, TensorProto.FLOAT16)
        if precision == FLOAT32 or same:
            return None
        reduced = reduced_axes(node, weight) if precision != FLOAT16 else ()
        key = (weight.name, precision, reduced, self._block if precision == INT4 else 0)
        if key not in self._packed:
            # The axis is in the name, because layers may read one weight along different axes.
            suffix = "".join([f"_{precision}", *(f"_{axis}" for axis in reduced[:1])])
            name = unused_name(weight.name + suffix, self.constants)
            chosen = self._choose(node.name, precision) if precision in LEVELS else None
            self._packed[key] = pack(weight, name, precision, reduced, self._block, chosen)
        return self._packed[key]


def position_of(node: onnx.NodeProto, weight: onnx.TensorProto) -> int:
    """Return which input of a node this weight is."""
    # A MatMul may read its weight on both sides: the one on the right was packed.
    return list(node.input).index(weight.name, 1 if node.input[1] == weight.name else 0)


def bias_of(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    """Return the layer's bias, if it is a constant that float16 can hold."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.input) <= BIAS:
        return None
    bias = constants.get(node.input[BIAS])
    if bias is None or bias.data_type != TensorProto.FLOAT:
        return None
    largest = np.abs(numpy_helper.to_array(bias)).max(initial=0)
    return bias if largest <= HALF.max else None


def own_weights(proto: onnx.ModelProto, layers: Collection[str]) -> None:
    """Give these layers copies of their own of the weights that other nodes read too."""
    graph = proto.graph
    constants = initializers(graph)
    others = {name for node in all_nodes(graph) if node.name not in layers for name in node.input}
    copies: dict[str, str] = {}
    for node, weights in layers_with_weights(graph, constants, layers):
        for weight in weights:
            if weight.name not in others:
                continue
            if weight.name not in copies:
                copy = graph.initializer.add()
                copy.CopyFrom(weight)
                copy.name = copies[weight.name] = unused_name(f"{weight.name}_own", constants)
            for at, name in enumerate(node.input):
                if name == weight.name:
                    node.input[at] = copies[name]


def at_opset(model: Model, version: int) -> Model:
    """Return the model in this opset, or unchanged if it has this or a later one."""
    given = max(each.version for each in model.proto.opset_import if not each.domain)
    if given >= version:
        return model
    try:
        proto = changed(
            model.proto, lambda proto: version_converter.convert_version(proto, version)
        )
    except Exception as error:  # The converter raises RuntimeError and others.
        raise QuantizationError(
            f"model {model.name!r} cannot be converted from opset {given} to {version} "
            f"({first_line(error)}), which {INT4}, {INT16} and {CODED} need (coded_int8, too). "
            f"Export it with opset {version} or later, or leave these out."
        ) from error
    needed = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, needed)
    return Model(model.name, proto)


def stored_bytes(layer: Layer, precision: str, block: int = 32) -> int:
    """Return about how many bytes of the model's file a layer's weight takes in this precision."""
    if precision == FLOAT32:
        return layer.weight_bytes
    if precision in CODED_STEPS:
        return layer.coded_bytes[precision]
    outputs, *values = layer.shape
    names = (_LOOKUP_BYTES if layer.op_type == "Gather" else _UNPACKING_BYTES)[precision]
    return sum(outputs * _value_bytes(each, precision, block) + names for each in values)


def _value_bytes(values: int, precision: str, block: int) -> int:
    """Return the bytes of all values that an output has, with their scales."""
    if precision == FLOAT16:
        return values * 2
    if precision == INT4:
        count, length = even_blocks(values, block)
        return (count * length + 1) // 2 + 2 * count
    return values + 2 if precision == INT8 else values * 2 + 4


def layers_with_weights(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], layers: Collection[str]
) -> list[tuple[onnx.NodeProto, tuple[onnx.TensorProto, ...]]]:
    """Return the nodes of these layers with their weights, in the order of the graph."""
    found = [(node, weights_of(node, constants)) for node in graph.node if node.name in layers]
    unknown = sorted(set(layers) - {node.name for node, weights in found if weights})
    if unknown:
        known = [node.name for node in graph.node if weight_of(node, constants) is not None]
        raise LayerError(unknown, known, "candidate.precisions")
    return found
