"""Large models as ONNX Runtime folds them: what `quant_pre_process` does, without its copies."""

from pathlib import Path

import onnx

from seqto.graph.files import Weights, read_weights
from seqto.graph.nodes import replace_nodes
from seqto.graph.sessions import session_of


def folded(light: onnx.ModelProto, weights: Weights, path: Path) -> onnx.ModelProto:
    """Return the model with constants folded and shapes inferred; it is written to this path.

    `quant_pre_process` would hold it several times at once, and so it is done here step by step.
    """
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    session_of(light, weights, options)
    written = onnx.load(path, load_external_data=False)
    _undo_additions(written.graph, light.graph)
    # Without its weights, which have no part in it.
    inferred = onnx.shape_inference.infer_shapes(written)
    add_pre_process_metadata(inferred)
    read_weights(inferred, path.parent)
    return inferred


def _undo_additions(written: onnx.GraphProto, given: onnx.GraphProto) -> None:
    """Take out what ONNX Runtime adds only where it writes weights apart."""
    for tensor in written.initializer:
        if not tensor.doc_string:
            tensor.ClearField("doc_string")
    if _wiring(written) != _wiring(given):
        return
    # It spells out the defaults of all attributes, else only where it changed a graph.
    replace_nodes(written, given.node)
    if not given.HasField("doc_string"):
        written.ClearField("doc_string")


def _wiring(graph: onnx.GraphProto) -> dict[str, tuple[object, ...]]:
    """Return what each node computes from what."""
    return {
        node.name: (node.op_type, node.domain, tuple(node.input), tuple(node.output))
        for node in graph.node
    }
