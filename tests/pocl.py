"""PoCL, an OpenCL driver for CPUs: what the tests of OpenCL run on, in place of a GPU."""

import importlib.util
from pathlib import Path

import pytest

RUNTIME = "libtvm_runtime_opencl.so"


def why_not() -> str:
    """Return why OpenCL does not run here; "" if it does."""
    tvm = _folder("tvm")
    if tvm is None or not (tvm / "lib" / RUNTIME).exists():
        return (
            "needs TVM's OpenCL runtime: scripts/opencl_runtime --tvm-source ../shared/tvm-opencl"
        )
    if _library() is None:
        return "needs PoCL: pip install 'pyopencl[pocl]'"
    return ""


def use_pocl(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make PoCL the only OpenCL driver; its compiled kernels are kept in the folder."""
    vendors = folder / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "pocl.icd").write_text(str(_library()))
    patch.setenv("OCL_ICD_VENDORS", str(vendors))
    patch.setenv("POCL_CACHE_DIR", str(folder / "kernels"))


def _library() -> Path | None:
    package = _folder("pyopencl")
    return None if package is None else next(package.glob(".libs/libpocl*.so"), None)


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


needs_opencl = pytest.mark.skipif(bool(why_not()), reason=why_not())
