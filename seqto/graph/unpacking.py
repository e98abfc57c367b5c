"""Makes stored weights plain constants again, once instead of whenever a model is loaded.

Expects a candidate as a quantizer makes it. The result has the same outputs, bit for bit: it is
larger, and ONNX Runtime loads it faster. What kernels read in fewer bits stays as it is: weights
with a DequantizeLinear, those of MatMulNBits, and the rows of a table (Gather) that is not coded.
Only the integers of an int4 table become int8, as they do in memory at each load.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from seqto.graph.decoders import DOMAIN
from seqto.graph.links import drop_unused
from seqto.graph.nodes import all_nodes, initializers, reads, replace_nodes
from seqto.graph.sessions import open_session
from seqto.types import Model

_STORED = (TensorProto.INT4, TensorProto.INT8, TensorProto.INT16, TensorProto.FLOAT16)
"""The types that weights are stored in; a Cast is the first that is done with them."""

_STEPS = ("Cast", "Concat", "Mul", "Reshape", "Slice", "Split", "Transpose")
"""The operations that unpack weights, besides the functions that decode them."""


def unpacked(model: Model) -> Model:
    """Return the model with its stored weights as plain constants."""
    proto = model.copy_proto()
    unpack_weights(proto)
    return Model(model.name, proto, model.session)


def unpack_weights(proto: onnx.ModelProto) -> None:
    """Replace the nodes that unpack stored weights by the unpacked weights."""
    nodes = _unpacking(proto.graph)
    replace_by_values(proto, nodes)
    drop_decoding(proto)
    drop_unused(proto.graph, {name for node in nodes for name in node.input})


def has_coded_weights(proto: onnx.ModelProto) -> bool:
    """Tell whether the model decodes weights when it is loaded."""
    return any(each.domain == DOMAIN for each in proto.functions)


def decode_weights(proto: onnx.ModelProto) -> None:
    """Unpack the weights of a model if some of them are coded."""
    if has_coded_weights(proto):
        unpack_weights(proto)


def replace_by_values(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Replace these nodes, which depend only on constants, by what ONNX Runtime computes there.

    Expects copies of the graph's nodes. The constants that they read stay.
    """
    graph = proto.graph
    made = {name for node in nodes for name in node.output}
    kept = [node for node in graph.node if node.output[0] not in made]
    read = {name for node in kept for name in reads(node)}
    wanted = sorted(made & read.union(each.name for each in graph.output))
    if not wanted:
        return
    for name, values in zip(wanted, _computed(proto, nodes, wanted), strict=True):
        graph.initializer.append(numpy_helper.from_array(values, name))
    replace_nodes(graph, kept)


def drop_decoding(proto: onnx.ModelProto) -> None:
    """Delete the functions that decode weights, if nothing calls them."""
    if any(node.domain == DOMAIN for node in all_nodes(proto.graph)):
        return
    for field in (proto.functions, proto.opset_import):
        for index in reversed(range(len(field))):
            if field[index].domain == DOMAIN:
                del field[index]


def _unpacking(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return copies of the nodes that unpack weights, and of those that only these need."""
    constants = initializers(graph)
    known = {"", *constants}.difference(each.name for each in graph.input)
    # Where several read the same integers, each slices its own: kernels do without these copies.
    integers = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    steps, made = [], set[str]()
    for node in graph.node:
        if node.op_type == "Slice" and node.output[0] in integers:
            continue
        if _is_step(node) and known.issuperset(node.input):
            known.update(node.output)
            steps.append(node)
            if _begins(node, constants) or not made.isdisjoint(node.input):
                made.update(node.output)
    found = []
    for node in reversed(steps):
        if not made.isdisjoint(node.output):
            # Also what they read: some steps only prepare others, as the Split of a code's words.
            made.update(node.input)
            found.append(onnx.NodeProto.FromString(node.SerializeToString()))
    return found[::-1]


def _is_step(node: onnx.NodeProto) -> bool:
    """Return whether the node does what unpacking consists of."""
    return bool(node.domain == DOMAIN or (not node.domain and node.op_type in _STEPS))


def _begins(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Return whether the node reads a stored weight."""
    if node.domain == DOMAIN:
        return True
    stored = constants.get(node.input[0])
    return node.op_type == "Cast" and stored is not None and stored.data_type in _STORED


def _computed(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]
) -> list[np.ndarray]:
    """Return the values of these tensors, which these nodes make of constants."""
    import onnxruntime

    read = {name for node in nodes for name in node.input}
    part = onnx.ModelProto()
    part.ir_version = proto.ir_version
    part.opset_import.extend(proto.opset_import)
    part.functions.extend(proto.functions)
    part.graph.name = "constants"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(each for each in proto.graph.initializer if each.name in read)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # All cores would spin while they wait: twice the CPU for the same work.
    options.intra_op_num_threads = 1
    # It runs once: optimizing it would gain nothing.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_session(Model("constants", part), options)
    return list(session.run(list(wanted), {}))
