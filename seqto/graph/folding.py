"""Constant folding of large models: what `quant_pre_process` does, without its copies."""

from pathlib import Path

import onnx

from seqto.graph.files import Weights, read_weights
from seqto.graph.nodes import replace_nodes
from seqto.graph.sessions import session_of


def folded(light: onnx.ModelProto, weights: Weights, path: Path) -> onnx.ModelProto:
    """Return the model with constants folded and shapes inferred; ORT writes it to this path.

    `quant_pre_process` would hold the model in memory several times at once.
    """
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    session_of(light, weights, options)
    written = onnx.load(path, load_external_data=False)
    _undo_additions(written.graph, light.graph)
    # Before the weights are read: shapes do not depend on them.
    inferred = onnx.shape_inference.infer_shapes(written)
    add_pre_process_metadata(inferred)
    read_weights(inferred, path.parent)
    return inferred


def _undo_additions(written: onnx.GraphProto, given: onnx.GraphProto) -> None:
    """Remove what ONNX Runtime adds only when it writes weights to a separate file."""
    for tensor in written.initializer:
        if not tensor.doc_string:
            tensor.ClearField("doc_string")
    if _wiring(written) != _wiring(given):
        return
    # It then writes the defaults of all attributes; otherwise only if it changed the graph.
    replace_nodes(written, given.node)
    if not given.HasField("doc_string"):
        written.ClearField("doc_string")


def _wiring(graph: onnx.GraphProto) -> dict[str, tuple[object, ...]]:
    """Return the operation, inputs and outputs of each node."""
    return {
        node.name: (node.op_type, node.domain, tuple(node.input), tuple(node.output))
        for node in graph.node
    }
