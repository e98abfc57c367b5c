"""What a TVM device needs, looked at before anything is compiled."""

import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from seqto.devices import tvm_run
from seqto.devices.helper_process import State, Worker
from seqto.devices.tvm_compile import NDK, Recipe
from seqto.devices.tvm_links import Whereabouts, await_device
from seqto.devices.tvm_tracker import look
from seqto.errors import DeviceUnreachableError
from seqto.graph.load import first_line

_SOURCE = 'extern "C" int seqto() { return 0; }\n'
_MACHINES = {"x86_64": 62, "aarch64": 183, "arm64": 183, "armv7a": 40, "arm": 40, "riscv64": 243}
"""ELF's number for an architecture, by its name in an LLVM triple."""
_SECONDS = 60


def linker_lacks(recipe: Recipe) -> str:
    """Return why what TVM compiles cannot be linked, and the remedy; "" if it can."""
    compiler = _compiler(recipe)
    if compiler is None:
        return (
            "the compiler of Android's NDK: set TVM_NDK_CC to its path, such as .../toolchains/"
            "llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang++"
            if recipe.linker == "ndk"
            else "a C++ compiler that links what TVM makes: install g++ or clang"
        )
    named = f"{NDK}={compiler}" if recipe.linker == "ndk" else compiler
    if shutil.which(compiler) is None:
        return f"a compiler that runs: {named} is none. Set it to the path of one"
    with tempfile.TemporaryDirectory(prefix="seqto-link-") as folder:
        source, library = Path(folder) / "tried.cc", Path(folder) / "tried.so"
        source.write_text(_SOURCE)
        said = _linked(compiler, source, library)
        if said:
            return f"a compiler that links: {named} says {said!r}. Set it to one that does"
        return _wrong_machine(recipe, named, library)


def _compiler(recipe: Recipe) -> str | None:
    """Return the program that links, by its path or name."""
    if recipe.linker == "ndk":
        return os.environ.get(NDK) or None
    # As TVM chooses it.
    chosen = os.environ.get("CXX") or os.environ.get("CC")
    names = ("g++", "gcc", "clang++", "clang", "c++", "cc")
    return chosen or next(filter(None, map(shutil.which, names)), None)


def _linked(compiler: str, source: Path, library: Path) -> str:
    """Link a tiny library; return what the compiler says if it fails."""
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return first_line(error)
    if done.returncode == 0 and library.exists():
        return ""
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return first_line((lines or done.stderr.splitlines() or ["nothing"])[0])


def _wrong_machine(recipe: Recipe, named: str, library: Path) -> str:
    """Return why a library is for another machine than the device's CPU; "" if it is not."""
    triple = str((recipe.host or recipe.target).get("mtriple", ""))
    wanted = _MACHINES.get(triple.partition("-")[0])
    header = library.read_bytes()[:20]
    if wanted is None or header[:4] != b"\x7fELF":
        return ""
    (found,) = struct.unpack("<H", header[18:20])
    if found == wanted:
        return ""
    makes = next((name for name, number in _MACHINES.items() if number == found), "another machine")
    remedy = (
        "Set it to one for that machine"
        if recipe.linker == "ndk"
        else f"Choose device.linker=ndk with {NDK}=<a compiler for that machine>"
    )
    return f"a compiler for {triple}: {named} makes code for {makes}. {remedy}"


def no_code_for(state: State, kind: str) -> str:
    """Return why TVM makes no code for this kind of target; "" if it does. Called in a worker."""
    import tvm

    if kind == "llvm" or tvm.get_global_func(f"target.build.{kind}", allow_missing=True):
        return ""
    return f"a TVM that makes code for {kind}: this one does not. Set device.target.kind"


def driver_here_lacks(state: State, kind: str) -> str:
    """Return why this machine's TVM does not run this kind of code; called in a worker."""
    import tvm

    return tvm_run.driver_lacks(tvm, kind)


def driver_there_lacks(state: State, key: str, kind: str) -> str:
    """Open a session on a free device; return why it does not run this kind; in a worker."""
    session = state["tracker"].request(key, session_timeout=0, max_retry=1)
    return tvm_run.driver_lacks(session, kind)


def device_lacks(
    worker: Worker, place: Whereabouts, kind: str, wait_seconds: float
) -> dict[str, str]:
    """Return what is missing of a device behind a tracker: the device, or a driver over there."""
    try:
        await_device(worker, place, wait_seconds, _SECONDS, None)
    except DeviceUnreachableError:
        sight = worker.call(look, place.host, place.port, place.key, seconds=_SECONDS)
        # One that is in use is waited for later.
        return {} if sight.registered else {"device": f"a device that answers: {sight.reason}"}
    lack = worker.call(driver_there_lacks, place.key, kind, seconds=_SECONDS)
    return {"device": "", "driver": lack}
