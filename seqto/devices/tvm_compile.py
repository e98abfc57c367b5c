"""TVM makes a library of a candidate: imported from ONNX, scheduled, compiled and linked."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError, DeviceCompileError, DeviceImportError
from seqto.graph.load import first_line, input_specs
from seqto.graph.lowering import lowered
from seqto.types import Model, content_key, sha256

NDK = "TVM_NDK_CC"
"""The environment variable with the path of Android's compiler."""

_COMPLAINT = re.compile(r"(?i)error:|undefined reference|incompatible|cannot find|wrong format")

RULES = 3
"""The version of the rewrites and schedules; libraries of other versions are not reused."""


LONGEST_NAME = 100
"""Kernels are named by all that is fused in them, and PoCL fails if no file can have that name."""


@dataclass(frozen=True)
class Recipe:
    """How libraries are made; `target` and `host` are TVM's descriptions of machines.

    `linker` is `cc` for this machine's compiler, or `ndk` for Android's in TVM_NDK_CC.
    """

    target: Mapping[str, Any]
    host: Mapping[str, Any] | None
    linker: str
    scheduled: bool

    @property
    def on_cpu(self) -> bool:
        """Whether the code is for a CPU, not for a GPU."""
        return bool(self.target["kind"] == "llvm")

    def environment(self) -> dict[str, str]:
        """Return the environment variables that the compiling process needs."""
        return {NDK: os.environ.get(NDK, "")} if self.linker == "ndk" else {}

    def key(self, model: Model) -> str:
        """Return the key of a model's library."""
        made_by = [tvm_version(), RULES, version("seqto"), self.environment()]
        return content_key([sha256(model.to_bytes()), asdict(self), made_by])


def require_tvm(name: str) -> None:
    """Raise if TVM is not installed."""
    if find_spec("tvm") is None:
        raise ConfigError(f"device={name} needs Apache TVM: pip install 'seqto[tvm]'.")


def tvm_version() -> str:
    """Return TVM's version."""
    try:
        return version("apache-tvm")
    except PackageNotFoundError:  # A build from source may have no metadata.
        import tvm

        return str(tvm.__version__)


def targets() -> dict[str, bool]:
    """Return what this TVM compiles for, and whether it runs here; empty without TVM."""
    if find_spec("tvm") is None:
        return {}
    import tvm

    return {
        kind: bool(tvm.runtime.enabled(kind))
        for kind in ("llvm", "opencl", "cuda", "rocm", "metal", "vulkan")
        if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is not None
    }


def host_cpu() -> str:
    """Return LLVM's name for this machine's CPU."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_cpu())


def compile_library(state: object, model: Model, recipe: Recipe, device: str, path: Path) -> None:
    """Write the model's library, for a batch of 1; called in a worker."""
    _require_linker(recipe, device)
    imported = _imported(model, device)
    try:
        _export(_compiled(imported, recipe), recipe, path)
    except Exception as error:  # TVM's and the linker's errors have no common base.
        raise DeviceCompileError(
            f"{device} cannot compile {model.name!r}: {last_line(error)}"
        ) from error


def _require_linker(recipe: Recipe, device: str) -> None:
    if recipe.linker == "ndk" and not os.environ.get(NDK):
        raise ConfigError(
            f"device={device} needs the compiler of Android's NDK: set TVM_NDK_CC to its path, "
            "such as .../toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang++."
        )
    if recipe.linker == "cc" and not any(map(shutil.which, ("g++", "clang++", "cc"))):
        raise ConfigError(
            f"device={device} needs a C++ compiler to link what TVM makes: install g++ or clang."
        )


def _imported(model: Model, device: str) -> Any:
    """Return the model as a TVM module."""
    from tvm.relax.frontend.onnx import from_onnx

    try:
        ready = lowered(model)
        shapes = {
            spec.name: [1 if dim is None else dim for dim in spec.shape]
            for spec in input_specs(ready)
        }
        return from_onnx(ready.proto, shape_dict=shapes)
    except Exception as error:  # TVM raises its own errors, and Python's.
        raise DeviceImportError(
            f"{device} cannot load {model.name!r}: {_failing_node(error)}{last_line(error)}"
        ) from error


def _failing_node(error: BaseException) -> str:
    """Return the operation that TVM's importer was at, which its errors seldom name."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        if node is not None and type(node).__name__ == "NodeProto":
            found = f"{node.op_type} {node.name!r}: "
        trace = trace.tb_next
    return found


def _compiled(imported: Any, recipe: Recipe) -> Any:
    import tvm

    target = tvm.target.Target(dict(recipe.target), host=_host(recipe))
    pipeline = _cpu_pipeline(target, recipe) if recipe.on_cpu else _gpu_pipeline(target)
    with target:
        return tvm.compile(imported, target, relax_pipeline=pipeline)


def _host(recipe: Recipe) -> Any:
    return None if recipe.host is None else dict(recipe.host)


def _cpu_pipeline(target: Any, recipe: Recipe) -> Any:
    """Return TVM's own pipeline for CPUs, with the schedule added after fusion."""
    import tvm
    from tvm.relax.backend.cpu_generic import pipeline

    legalize = scheduled_passes if recipe.scheduled else pipeline.legalize_passes
    return tvm.transform.Sequential(
        [
            *pipeline.library_dispatch_passes(target),
            *legalize(target),
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
    )


def scheduled_passes(target: Any) -> list[Any]:
    """Return TVM's passes from operations to loops, with packed channels and schedules."""
    from tvm.relax.backend.cpu_generic import pipeline

    from seqto.devices.tvm_constants import folding_pass
    from seqto.devices.tvm_packing import packing_pass
    from seqto.devices.tvm_propagation import propagating_pass
    from seqto.devices.tvm_schedule import schedule_pass

    passes = pipeline.legalize_passes(target)
    fusion = [each.info.name for each in passes].index("FuseOps")
    before, after = passes[:fusion], passes[fusion:]
    packing = [folding_pass(), packing_pass(target)]
    return [*packing, *before, propagating_pass(), *after, schedule_pass()]


def _gpu_pipeline(target: Any) -> Any:
    """Return TVM's own pipeline, with names that drivers can make files of."""
    import tvm
    from tvm import relax

    @tvm.transform.module_pass(opt_level=0, name="ShortNames")
    def short_names(module: Any, _: Any) -> Any:
        for at, (variable, function) in enumerate(module.functions_items()):
            name = variable.name_hint
            if len(name) > LONGEST_NAME and "global_symbol" in (function.attrs or {}):
                short = f"{name[:LONGEST_NAME]}_{at}"
                module[variable] = function.with_attr("global_symbol", short)
        return module

    steps = [relax.get_default_pipeline(target), short_names, relax.transform.NormalizeGlobalVar()]
    return tvm.transform.Sequential(steps)


def _export(executable: Any, recipe: Recipe, path: Path) -> None:
    from tvm.support import ndk

    options = {"fcompile": ndk.create_shared} if recipe.linker == "ndk" else {}
    # TVM needs the extension, which a temporary name does not have.
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "candidate.so"
        executable.export_library(str(library), **options)
        shutil.move(library, path)


def last_line(error: BaseException) -> str:
    """Return the line of a TVM error that says why; the lines before are a traceback.

    Of what a linker says, that is its first complaint, not that it failed.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and "ld returned" in lines[-1]:
        lines = [line for line in lines if _COMPLAINT.search(line)][:1] or lines
    return first_line(lines[-1] if lines else type(error).__name__)
