"""ONNX Runtime sessions of models in memory, including those too large for one message."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from seqto.graph.files import Weights, buffer, stripped
from seqto.types import Arrays, Model

if TYPE_CHECKING:
    import onnxruntime

_LOCATION = "weights"
_NO_PREPACKING = "session.disable_prepacking"
_WRITTEN_BESIDE = "session.optimized_model_external_initializers_file_name"


def open_session(
    model: Model,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]] = ("CPUExecutionProvider",),
    **settings: object,
) -> "onnxruntime.InferenceSession":
    """Return a session of the model with these options, created from memory."""
    if not model.is_large:
        return _opened(model.to_bytes(), options, providers, **settings)
    light, weights = stripped(model.proto, _LOCATION)
    return session_of(light, weights, options, providers, **settings)


def single_session(model: Model) -> "onnxruntime.InferenceSession":
    """Return a quiet session of the model on one core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # All cores would spin while they wait: twice the CPU for the same work.
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return open_session(model, options)


def run_named(
    session: "onnxruntime.InferenceSession", names: Sequence[str], inputs: Arrays
) -> Arrays:
    """Return these outputs by name."""
    # Without names ORT would return all outputs.
    return dict(zip(names, session.run(list(names), dict(inputs)), strict=True)) if names else {}


def session_of(
    light: onnx.ModelProto,
    weights: Weights,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]] = ("CPUExecutionProvider",),
    **settings: object,
) -> "onnxruntime.InferenceSession":
    """Return a session of a graph and its separate weights with these options.

    If the options ask for the optimized model to be written, its weights are written beside it.
    """
    if options.optimized_model_filepath:
        beside = f"{Path(options.optimized_model_filepath).name}.data"
        options.add_session_config_entry(_WRITTEN_BESIDE, beside)
    content = buffer(weights)
    # This memory stands for the file that the graph refers to; ORT copies what it keeps.
    options.add_external_initializers_from_files_in_memory([_LOCATION], [content], [content.nbytes])
    return _opened(light.SerializeToString(), options, providers, **settings)


def _opened(
    graph: bytes,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]],
    **settings: object,
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    if options.optimized_model_filepath:
        # Such a session only writes the model, and needs no copies of weights for kernels.
        options.add_session_config_entry(_NO_PREPACKING, "1")
    return onnxruntime.InferenceSession(graph, options, providers=list(providers), **settings)
