"""Constants and batch normalization folded, and shapes inferred, by ONNX Runtime and onnx.

The same steps as those of ONNX Runtime's `quant_pre_process`, which in 1.24 leaves out the folding
when it is to skip symbolic shapes, and which holds large models in memory several times at once.
"""

from pathlib import Path
from typing import Any

import onnx

from seqto.graph.files import Weights, read_weights
from seqto.graph.nodes import replace_nodes
from seqto.graph.sessions import session_of


def folded_small(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return a model that fits a protobuf, folded; files are written to the folder."""
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    given, optimized, inferred = (folder / f"{name}.onnx" for name in ("given", "folded", "shaped"))
    onnx.save(proto, given)
    options = _folding(optimized)
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    onnx.shape_inference.infer_shapes_path(optimized, inferred)
    result = onnx.load(inferred)
    add_pre_process_metadata(result)
    return result


def _folding(path: Path) -> Any:
    """Return the options of a session that writes the folded model to this path."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    return options


def folded(light: onnx.ModelProto, weights: Weights, path: Path) -> onnx.ModelProto:
    """Return a large model, given without its weights, folded; ORT writes it to this path."""
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    session_of(light, weights, _folding(path))
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
