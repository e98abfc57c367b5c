"""Builds TVM's OpenCL runtime beside the apache-tvm of PyPI, which has none.

    git clone --depth 1 --branch v0.27.0 https://github.com/apache/tvm
    scripts/opencl_runtime --tvm-source tvm

Only three files of the sources are compiled, against the headers and libraries of the installed
wheel (some 12 CPU s). The library goes to where `import tvm` looks for it, so RPC servers of the
same environment have it too. A C++20 compiler and OpenCL's headers are needed (Debian: g++,
opencl-c-headers, opencl-clhpp-headers, ocl-icd-libopencl1); a driver can follow later.
"""

import argparse
import ctypes
import ctypes.util
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

NAME = "libtvm_runtime_opencl.so"
RUNTIME = Path("src", "backend", "opencl", "runtime")
FILES = ("opencl_device_api.cc", "opencl_module.cc", "opencl_wrapper/opencl_wrapper.cc")
COMPILERS = ("g++", "clang++", "c++")
LOADER = "libOpenCL.so"
"""The name by which TVM's runtime opens OpenCL."""

OPENS = """
import ctypes, pathlib, tvm
library = pathlib.Path(tvm.__file__).parent / "lib" / "libtvm_runtime_opencl.so"
ctypes.CDLL(str(library))
device = tvm.opencl(0)
print(device.device_name if device.exist else "")
"""


class BuildError(Exception):
    """Why there is no runtime, with the remedy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and install the runtime; print where it is and which device it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tvm-source", type=Path, required=True, help="a clone of apache/tvm")
    parser.add_argument("--headers", type=Path, help="folder that has CL/cl.h, if not the system's")
    chosen = parser.parse_args(arguments)
    try:
        library = installed(chosen.tvm_source, chosen.headers)
    except BuildError as error:
        print(f"scripts/opencl_runtime: {error}", file=sys.stderr)
        return 1
    print(f"runtime: {library}")
    print(f"device:  {found_device()}")
    return 0


def installed(source: Path, headers: Path | None) -> Path:
    """Return the path of the runtime built from these sources; build it if it is not there yet."""
    sources = [source / RUNTIME / name for name in FILES]
    if missing := [str(each) for each in sources if not each.is_file()]:
        raise BuildError(
            f"{missing[0]} is missing. --tvm-source has to be a clone of apache/tvm with the tag "
            f"of the installed version, v{version('apache-tvm').partition('.post')[0]}."
        )
    library = folder("tvm") / "lib" / NAME
    stamp, key = library.with_suffix(".key"), content_key(source, sources)
    link_loader(library.parent)
    if library.exists() and stamp.exists() and stamp.read_text() == key:
        return library
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as made:
        build(source, sources, headers, Path(made) / NAME)
        os.replace(Path(made) / NAME, library)
    check(library)
    stamp.write_text(key)
    return library


def build(source: Path, sources: Sequence[Path], headers: Path | None, library: Path) -> None:
    """Compile and link the runtime."""
    folders = [folder("tvm") / "include", source / "include", folder("tvm_ffi") / "include"]
    folders += [source / "src", *([headers] if headers else [])]
    libraries = [folder("tvm") / "lib", folder("tvm_ffi") / "lib"]
    command = [
        *(compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", "-w", "-o", str(library)),
        *(f"-I{each}" for each in folders),
        *map(str, sources),
        *(f"-L{each}" for each in libraries),
        # Beside the library may lie a link to OpenCL's own.
        *("-ltvm_runtime", "-ltvm_ffi", "-ldl", "-Wl,-rpath,$ORIGIN"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(why(done.stderr))


def why(errors: str) -> str:
    """Return the compiler's first error, with the remedy if it is a known one."""
    lines = [line for line in errors.splitlines() if "error" in line.lower()]
    first = (lines or errors.splitlines() or ["the compiler says nothing"])[0].strip()
    if "CL/" in first:
        return (
            f"OpenCL's headers are missing ({first}). Install opencl-c-headers and "
            "opencl-clhpp-headers (Debian), or name their folder by --headers."
        )
    return (
        f"the runtime cannot be compiled: {first}. Sources and wheel have to be of one version: "
        f"the wheel's is {version('apache-tvm')}."
    )


def compiler() -> str:
    """Return the C++ compiler, by CXX or the first that is there."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise BuildError(f"there is no C++ compiler ({', '.join(names)}). Install g++ or set CXX.")
    return found


def link_loader(where: Path) -> None:
    """Lay a link to OpenCL's loader beside the runtime where the system has it by another name.

    Debian's has the name libOpenCL.so only in its package for developers.
    """
    link = where / LOADER
    if link.is_symlink():
        link.unlink()
    with_version = ctypes.util.find_library("OpenCL")
    if with_version is None or opens(LOADER):
        return
    path = resolved(with_version)
    if path is not None:
        link.symlink_to(path)


def opens(name: str) -> bool:
    """Tell whether the system's loader finds a library by this name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def resolved(name: str) -> Path | None:
    """Return the path of a library that the system's loader finds by this name."""
    script = f"import ctypes; ctypes.CDLL({name!r}); print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    paths = [line.split()[-1] for line in done.stdout.splitlines() if "libOpenCL" in line]
    return Path(paths[0]) if paths else None


def check(library: Path) -> None:
    """Raise if TVM cannot load the library: it would say nothing of it itself."""
    done = opened()
    if "undefined symbol" in done.stderr or "cannot open shared object" in done.stderr:
        library.unlink()
        raise BuildError(f"TVM cannot load what was built: {done.stderr.strip().splitlines()[-1]}")


def found_device() -> str:
    """Return the first OpenCL device, or what to do if there is none."""
    done = opened()
    name = done.stdout.strip()
    if name:
        return name
    if "Cannot open libOpenCL" in done.stderr:
        return "none: there is no OpenCL loader (Debian: apt install ocl-icd-libopencl1)"
    return "none: install the OpenCL driver of your GPU, or PoCL (Debian: pocl-opencl-icd)"


def opened() -> subprocess.CompletedProcess[str]:
    """Open the runtime in a new process, which prints the name of the first device."""
    return subprocess.run([sys.executable, "-c", OPENS], capture_output=True, text=True)


def folder(package: str) -> Path:
    """Return where a package is installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BuildError("Apache TVM is not installed: pip install 'seqto[tvm]'.")
    return Path(spec.origin).parent


def content_key(source: Path, sources: Sequence[Path]) -> str:
    """Return a key of what the runtime is built from."""
    digest = hashlib.sha256(f"{version('apache-tvm')} {version('apache-tvm-ffi')}".encode())
    for path in (*sources, *sorted((source / RUNTIME).glob("*.h")), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
