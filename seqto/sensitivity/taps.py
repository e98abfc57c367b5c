"""Reads inner tensors of a running model."""

from collections.abc import Sequence

import onnxruntime

from seqto.devices.onnxruntime import has_vnni, is_x86
from seqto.graph.inner import with_outputs
from seqto.graph.sessions import open_session
from seqto.graph.time_limits import run_limited
from seqto.types import Arrays, Model


class Taps:
    """A session that returns inner tensors; unfused, so that every one of them exists.

    With `folded`, what depends on constants alone is computed once, such as stored weights.
    """

    def __init__(self, model: Model, names: Sequence[str], folded: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_BASIC if folded else levels.ORT_DISABLE_ALL
        )
        if is_x86() and not has_vnni():
            # Integer operations would saturate, which has nothing to do with the layers.
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._names = list(names)
        self._session = open_session(with_outputs(model, names), options)

    def run(self, inputs: Arrays) -> Arrays:
        """Return the tensors for these samples, by name."""
        return dict(zip(self._names, run_limited(self._session, self._names, inputs), strict=True))
