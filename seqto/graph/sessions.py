"""ONNX Runtime sessions of models in memory, including those too large for one message."""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from seqto.graph.files import Weights, buffer, stripped
from seqto.graph.time_limits import run_limited
from seqto.types import Arrays, Model

if TYPE_CHECKING:
    import onnxruntime

Opener = Callable[[], "onnxruntime.InferenceSession"]
"""Creates a session from what is in memory already."""

_LOCATION = "weights"
_OPSETS = (helper.make_opsetid("", 17),)
_NO_PREPACKING = "session.disable_prepacking"
_WRITTEN_BESIDE = "session.optimized_model_external_initializers_file_name"


def open_session(
    model: Model,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]] = ("CPUExecutionProvider",),
    **settings: object,
) -> "onnxruntime.InferenceSession":
    """Return a session of the model with these options, created from memory."""
    return session_opener(model, options, providers, **settings)()


def session_opener(
    model: Model,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]] = ("CPUExecutionProvider",),
    **settings: object,
) -> Opener:
    """Return a function that creates a session of the model, and does nothing else."""
    if not model.is_large:
        return partial(_opened, model.to_bytes(), None, options, providers, **settings)
    light, weights = stripped(model.proto, _LOCATION)
    return _opener(light, weights, options, providers, **settings)


@functools.cache
def start_runtime() -> None:
    """Create a session once in this process: the first one takes longer than others."""
    graph = onnx.parser.parse_graph("start (float[1] x) => (float[1] y) { y = Identity (x) }")
    single_session(Model("start", helper.make_model(graph, ir_version=8, opset_imports=_OPSETS)))


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
    return dict(zip(names, run_limited(session, list(names), inputs), strict=True)) if names else {}


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
    return _opener(light, weights, options, providers, **settings)()


def _opener(
    light: onnx.ModelProto,
    weights: Weights,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]],
    **settings: object,
) -> Opener:
    if options.optimized_model_filepath:
        beside = f"{Path(options.optimized_model_filepath).name}.data"
        options.add_session_config_entry(_WRITTEN_BESIDE, beside)
    content = buffer(weights)
    # This memory stands for the file that the graph refers to; ORT copies what it keeps.
    options.add_external_initializers_from_files_in_memory([_LOCATION], [content], [content.nbytes])
    return partial(_opened, light.SerializeToString(), content, options, providers, **settings)


def _opened(
    graph: bytes,
    kept: np.ndarray | None,
    options: "onnxruntime.SessionOptions",
    providers: Sequence[str | tuple[str, dict[str, str]]],
    **settings: object,
) -> "onnxruntime.InferenceSession":
    """Create a session; `kept` is the memory that the graph's weights are in, if they are apart."""
    import onnxruntime

    if options.optimized_model_filepath:
        # Such a session only writes the model, and needs no copies of weights for kernels.
        options.add_session_config_entry(_NO_PREPACKING, "1")
    session = onnxruntime.InferenceSession(graph, options, providers=list(providers), **settings)
    # It would hold them as long as it lives, in case that its providers are set anew.
    session._model_bytes = None
    return session
