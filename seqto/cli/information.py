"""What --info prints: installed packages, devices, and where things are kept."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from seqto import __version__
from seqto.measuring.pool import usable_cores
from seqto.packages import installed_version
from seqto.secrets import masked
from seqto.workspace import Workspace

PACKAGES = {
    "onnx": "",
    "onnxruntime": "",
    "mlflow": "",
    "hydra-core": "",
    "pymoo": "",
    "apache-tvm": "pip install 'seqto[tvm]'",
    "huggingface_hub": "pip install 'seqto[hub]'",
    "datasets": "pip install 'seqto[hf]'",
    "tokenizers": "pip install 'seqto[text]'",
    "hydra-joblib-launcher": "pip install 'seqto[joblib]'",
    "ray": "pip install 'seqto[ray]'",
}
"""The packages that seqto uses, and how to install the optional ones."""


def print_information(words: Sequence[str] = ()) -> None:
    """Print one fact per line; with words of a study, also what it needs and what is missing."""
    told = facts() | (needs(words) if words else {})
    for name, fact in told.items():
        print(f"{name + ':':<23}{fact}".rstrip())


def needs(words: Sequence[str]) -> dict[str, str]:
    """Return what the study of these words needs, and whether it is there."""
    from seqto.config.compose import composed
    from seqto.config.needs import device_needs

    config = composed([word for word in words if not word.startswith("-")])
    found = device_needs(config)
    device = config.device.name
    return {
        f"{device} needs {name}": f"missing: {lack}" if lack else "is there"
        for name, lack in found.items()
    }


def facts() -> dict[str, str]:
    """Return the facts that a bug report should include, by name."""
    from seqto.devices.onnxruntime import cpu_name

    workspace = Workspace.default()
    return {
        "seqto": f"{__version__} ({Path(__file__).resolve().parent.parent})",
        "python": f"{platform.python_version()} on {platform.platform()}",
        **{name: _installed(name, remedy) for name, remedy in PACKAGES.items()},
        "providers": _providers(),
        "TVM targets": _targets(),
        "CPU": f"{cpu_name()}, {usable_cores()} cores to use",
        "VNNI": _vnni(),
        "cache": f"{workspace.root} ({_size(workspace.root)})",
        "tracking": _tracking(),
    }


def _installed(name: str, remedy: str) -> str:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return f"not installed: {remedy or f'pip install {name}'}"


def _providers() -> str:
    import onnxruntime

    return ", ".join(onnxruntime.get_available_providers())


def _targets() -> str:
    from seqto.devices.tvm_compile import targets

    found = targets()
    if not found:
        return "none, TVM is not installed"
    here = ", ".join(name for name, runs in found.items() if runs) or "none"
    elsewhere = ", ".join(name for name, runs in found.items() if not runs) or "none"
    return f"{here}; compiled for, with no runtime here: {elsewhere}"


def _vnni() -> str:
    from seqto.devices.onnxruntime import has_vnni, is_x86

    if not is_x86():
        return "none, this is no x86 CPU; its int8 kernels do not saturate"
    if has_vnni():
        return "yes: int8 kernels are fast and do not saturate"
    return "no: fast int8 kernels saturate; device=cpu runs with session.x64quantprecision instead"


def _size(folder: Path) -> str:
    if not folder.exists():
        return "not there yet"
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{total / 1e6:.1f} MB"


def _tracking() -> str:
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return f"{masked(uri)} (MLFLOW_TRACKING_URI)"
    # The same rule as MLflow's, which takes seconds to import.
    old = any(Path("mlruns").glob("*/meta.yaml"))
    store = (
        f"file://{Path('mlruns').resolve()}" if old else f"sqlite:///{Path('mlflow.db').resolve()}"
    )
    return f"{store} (MLflow's default for this folder)"
