"""The Mali target as far as it goes without a phone: code, linking, and OpenCL's own compiler."""

import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from onnx_models import residual
from quantizable_models import fully_quantized, mobile

from seqto.config.compose import register_sweeper
from seqto.config.paths import CONF
from seqto.devices import tvm_compile
from seqto.devices.tvm_device import TvmDevice
from seqto.devices.tvm_local import free_port
from seqto.devices.tvm_needs import linker_lacks
from seqto.errors import ConfigError, DeviceTransportError
from seqto.graph.prepare import prepare
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model

CROSS = shutil.which("aarch64-linux-gnu-g++")
AARCH64 = 183
"""ELF's number for the architecture."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path_factory.getbasetemp() / "tvm"))


@pytest.fixture
def phone() -> TvmDevice:
    """Return the device that the config describes."""
    register_sweeper()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", ["device=mali"])
    device: TvmDevice = instantiate(config.device, _convert_="all")
    return device


def quantized(kind: str) -> Model:
    model = prepare(mobile(1))
    if kind == "float":
        return model
    return fully_quantized(model, StaticQuantizer() if kind == "static" else DynamicQuantizer())


_sources: dict[str, str] = {}


def kernels(kind: str, device: TvmDevice) -> str:
    """Return the OpenCL source of a model, made once."""
    if kind not in _sources:
        _sources[kind] = made_kernels(quantized(kind), device)
    return _sources[kind]


def made_kernels(model: Model, device: TvmDevice) -> str:
    executable = tvm_compile._compiled(tvm_compile._imported(model, "mali"), device._recipe())
    pending, found = [executable.mod], []
    while pending:
        module = pending.pop()
        pending += list(module.imports)
        if module.kind == "opencl":
            found.append(module.inspect_source())
    return "\n".join(found)


def test_the_config_is_for_a_phone_behind_a_tracker(phone: TvmDevice) -> None:
    facts = phone.describe()
    assert "kind=opencl" in facts["target"] and "device=mali" in facts["target"]
    assert facts["key"] == "android"
    assert facts["kernels"] == "scheduled by dlight"
    recipe = phone._recipe()
    assert recipe.host == {"kind": "llvm", "mtriple": "aarch64-linux-android"}
    assert recipe.linker == "ndk" and "mcpu" not in recipe.target


def test_without_an_ndk_the_variable_is_named(
    phone: TvmDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    with pytest.raises(ConfigError, match="TVM_NDK_CC"):
        phone.load(prepare(residual()))
    assert "TVM_NDK_CC" in phone.needs()["compiler"]


@pytest.mark.parametrize(
    ("compiler", "said"),
    [("/no/such/clang++", "is none"), ("g++", "makes code for x86_64"), ("false", "that links")],
)
def test_a_wrong_compiler_is_told_before_anything_is_compiled(
    phone: TvmDevice, compiler: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NDK_CC", compiler)
    lack = linker_lacks(phone._recipe())
    assert said in lack and f"TVM_NDK_CC={compiler}" in lack


@pytest.mark.skipif(CROSS is None, reason="needs aarch64-linux-gnu-g++ (g++-aarch64-linux-gnu)")
def test_a_right_compiler_is_taken(phone: TvmDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NDK_CC", str(CROSS))
    assert linker_lacks(phone._recipe()) == ""


def test_all_that_is_missing_is_told_at_once(
    seqto: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    words = ["model=local", "model.path=nowhere.onnx", "device=mali", "dataset=images"]
    result = seqto(*words, f"device.tracker=127.0.0.1:{free_port()}", "-m")
    assert result.code == 1
    first, *lines = result.err.strip().splitlines()
    assert first.endswith("device=mali cannot begin yet:")
    wanted = ["TVM_NDK_CC", "no tracker answers", "nowhere.onnx does not exist", "dataset.path is"]
    assert len(lines) == len(wanted)
    assert all(text in line for text, line in zip(wanted, lines, strict=True))
    result = seqto("--info", *words[:3])
    assert result.code == 0
    assert all(f"mali needs {each}:" in result.out for each in ("compiler", "device", "data"))
    assert "missing: nowhere.onnx does not exist" in result.out


def test_a_host_without_a_triple_is_this_machine(phone: TvmDevice) -> None:
    phone.host = {"kind": "llvm", "mtriple": None}
    assert phone._recipe().host == {"kind": "llvm"}


@pytest.mark.parametrize("kind", ["float", "static", "dynamic"])
def test_kernels_are_made_with_the_stock_wheel(phone: TvmDevice, kind: str) -> None:
    source = kernels(kind, phone)
    assert source.count("__kernel") > 5
    names = re.findall(r"__kernel void.*?(\w+)\(", source)
    # Drivers make files of them; dynamic quantization fuses dozens of operations.
    assert names and max(map(len, names)) < 2 * tvm_compile.LONGEST_NAME


@pytest.mark.skipif(CROSS is None, reason="needs aarch64-linux-gnu-g++ (g++-aarch64-linux-gnu)")
@pytest.mark.parametrize("kind", ["float", "static"])
def test_libraries_are_for_the_phones_cpu(
    phone: TvmDevice, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Debian's cross compiler stands in for the NDK's: it links the same objects.
    monkeypatch.setenv("TVM_NDK_CC", str(CROSS))
    path = phone._library(quantized(kind))
    header = Path(path).read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert struct.unpack("<H", header[18:20]) == (AARCH64,)


@pytest.mark.skipif(CROSS is None, reason="needs aarch64-linux-gnu-g++ (g++-aarch64-linux-gnu)")
def test_without_a_tracker_the_phone_is_not_reached(
    phone: TvmDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NDK_CC", str(CROSS))
    phone.tracker, phone.wait_seconds = "127.0.0.1:9", 0.5
    with pytest.raises(DeviceTransportError, match="no tracker answers at 127.0.0.1:9"):
        phone.load(prepare(residual()))


@pytest.mark.parametrize("kind", ["float", "static", "dynamic"])
def test_kernels_build_on_another_opencl(phone: TvmDevice, kind: str) -> None:
    opencl = pytest.importorskip("pyopencl", reason="needs pyopencl and PoCL")
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        devices = [each for place in opencl.get_platforms() for each in place.get_devices()]
        context = next(filter(builds, (opencl.Context([each]) for each in devices)), None)
    except opencl.Error as error:
        pytest.skip(f"no OpenCL platform here: {error}")
    if context is None:
        pytest.skip("no OpenCL driver here knows this CPU")
    program = opencl.Program(context, kernels(kind, phone)).build()
    assert len(program.all_kernels()) > 5


def builds(context: Any) -> bool:
    """Tell whether a driver can build the least of kernels."""
    import pyopencl

    try:
        pyopencl.Program(context, "__kernel void nothing() {}").build()
    except pyopencl.RuntimeError:
        return False
    return True
