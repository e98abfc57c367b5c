"""Selective quantization of ONNX models, tracked in MLflow.

import seqto

result = seqto.tune("my.onnx", samples, max_accuracy_loss=0.01)
result.best.save("small.onnx")
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqto.api.result import Result, TunedCandidate
    from seqto.api.tune import load_study, quantize, rank, tune
    from seqto.errors import SeqtoError

__version__ = "0.1.0"

# Here, because MLflow reads it when it is imported, and whatever runs seqto, be it a worker, a job
# or a notebook, comes by here first. The reason is in `seqto/tracking/telemetry.py`.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

__all__ = [
    "Result",
    "SeqtoError",
    "TunedCandidate",
    "__version__",
    "load_study",
    "quantize",
    "rank",
    "tune",
]

_HOMES = {
    "Result": "seqto.api.result",
    "SeqtoError": "seqto.errors",
    "TunedCandidate": "seqto.api.result",
    "load_study": "seqto.api.tune",
    "quantize": "seqto.api.tune",
    "rank": "seqto.api.tune",
    "tune": "seqto.api.tune",
}


def __getattr__(name: str) -> Any:
    """Import names on first use, so that `import seqto` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqto' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
