"""ONNX Runtime's execution providers, and the packages that bring them."""

from collections.abc import Sequence

from seqto.errors import ConfigError, nearest

PACKAGES = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "NvTensorRTRTXExecutionProvider": "",
    "ROCMExecutionProvider": "onnxruntime-rocm",
    "MIGraphXExecutionProvider": "onnxruntime-migraphx",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "DmlExecutionProvider": "onnxruntime-directml (on Windows)",
    "QNNExecutionProvider": "onnxruntime-qnn",
    "VitisAIExecutionProvider": "",
    "CANNExecutionProvider": "onnxruntime-cann",
    "CoreMLExecutionProvider": "onnxruntime (on macOS)",
    "XnnpackExecutionProvider": "",
    "NnapiExecutionProvider": "",
    "ArmNNExecutionProvider": "",
    "ACLExecutionProvider": "",
    "CPUExecutionProvider": "onnxruntime",
}
"""The PyPI package with each provider; empty if ONNX Runtime must be built from source."""


def refuse_missing(provider: str, installed: Sequence[str]) -> None:
    """Raise if a provider is not installed, and say which are and what to install."""
    if provider in installed:
        return
    raise ConfigError(
        f"device.provider={provider} is not in this ONNX Runtime. It has "
        f"{', '.join(installed)}. {_remedy(provider)}"
    )


def _remedy(provider: str) -> str:
    if provider not in PACKAGES:
        hint = nearest(provider, PACKAGES)
        return f"seqto knows no such provider{hint}: {', '.join(sorted(PACKAGES))}."
    package = PACKAGES[provider]
    if not package:
        return "No PyPI package has it: build ONNX Runtime with it, or use its vendor's package."
    if "(" in package:
        return f"It comes with the package {package}."
    # The packages of ONNX Runtime overwrite each other's files.
    return f"Install it with pip uninstall onnxruntime && pip install {package}."
