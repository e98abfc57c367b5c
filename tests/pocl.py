"""PoCL, an OpenCL driver for CPUs: what the tests of OpenCL run on, in place of a GPU."""

import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNTIME = "libtvm_runtime_opencl.so"

_PROBE = """
from ctypes import CDLL, byref, c_char_p, c_int, c_long, c_void_p
cl = CDLL("libOpenCL.so.1")
for create in (cl.clCreateContext, cl.clCreateProgramWithSource):
    create.restype = c_void_p
place, device, error = c_void_p(), c_void_p(), c_int()
assert not cl.clGetPlatformIDs(1, byref(place), None)
assert not cl.clGetDeviceIDs(place, c_long(0xFFFFFFFF), 1, byref(device), None)
context = c_void_p(cl.clCreateContext(None, 1, byref(device), None, None, byref(error)))
source = c_char_p(b"__kernel void twice(__global float* a) { a[get_global_id(0)] *= 2; }")
program = c_void_p(cl.clCreateProgramWithSource(context, 1, byref(source), None, byref(error)))
raise SystemExit(cl.clBuildProgram(program, 0, None, None, None, None) != 0)
"""
"""Builds a kernel with the only driver there is: PoCL knows no CPU that is newer than its LLVM."""


def why_not() -> str:
    """Return why OpenCL does not run here; "" if it does."""
    tvm = _folder("tvm")
    if tvm is None or not (tvm / "lib" / RUNTIME).exists():
        return (
            "needs TVM's OpenCL runtime: scripts/opencl_runtime --tvm-source ../shared/tvm-opencl"
        )
    if _library() is None:
        return "needs a PoCL that knows this CPU: pip install 'pyopencl[pocl]', or Debian's"
    return ""


def use_pocl(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make PoCL the only OpenCL driver; its compiled kernels are kept in the folder."""
    library = _library()
    assert library is not None
    for name, value in _alone(library, folder).items():
        patch.setenv(name, value)


def _alone(library: Path, folder: Path) -> dict[str, str]:
    """Return the environment in which this is the only OpenCL driver."""
    vendors = folder / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "pocl.icd").write_text(str(library))
    return {"OCL_ICD_VENDORS": str(vendors), "POCL_CACHE_DIR": str(folder / "kernels")}


@functools.cache
def _library() -> Path | None:
    """Return the first PoCL that builds kernels for this machine's CPU."""
    return next(filter(_builds, _libraries()), None)


def _libraries() -> Iterator[Path]:
    package = _folder("pyopencl")
    if package is not None:
        yield from package.glob(".libs/libpocl*.so")
    yield from Path("/usr/lib").glob("*/libpocl.so.2")


def _builds(library: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | _alone(library, Path(folder))
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, check=False
        )
    return probe.returncode == 0


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


needs_opencl = pytest.mark.skipif(bool(why_not()), reason=why_not())
