"""OpenCL for real, on PoCL: this machine's device, and a phone's through tracker and server."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
from PIL import Image
from pocl import needs_opencl, use_pocl
from quantizable_models import fully_quantized, mobile, random_samples
from rpc_servers import KEY, server, tracker
from suite_devices import DeviceSuite
from zoo_models import resnet50

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.tvm_device import TvmDevice
from seqto.graph.prepare import prepare
from seqto.protocols import Device
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model

ROOT = Path(__file__).parents[2]
ANDROID = {"kind": "llvm", "mtriple": "x86_64-linux-android"}
"""A host for which TVM chooses the kernels of a phone, but which is this machine."""

pytestmark = needs_opencl


@pytest.fixture(scope="module", autouse=True)
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have all processes of these tests use PoCL, and keep what they compile together."""
    folder = tmp_path_factory.mktemp("opencl")
    with pytest.MonkeyPatch.context() as patch:
        use_pocl(patch, folder)
        patch.setenv("SEQTO_CACHE", str(folder / "cache"))
        yield


@pytest.fixture(scope="module")
def board(driver: None) -> Iterator[int]:
    """Run a tracker and a server, as for a phone; yield the tracker's port."""
    with tracker() as port, server(port):
        yield port


def opencl(**others: Any) -> TvmDevice:
    return TvmDevice(name="opencl", target={"kind": "opencl"}, warmup=0, repeats=2, **others)


def phone(port: int) -> TvmDevice:
    return TvmDevice(
        name="mali",
        target={"kind": "opencl", "device": "mali"},
        host=ANDROID,
        tracker=f"127.0.0.1:{port}",
        key=KEY,
        warmup=0,
        repeats=2,
    )


@pytest.mark.slow
class TestOpencl(DeviceSuite):
    """The conformance suite."""

    @pytest.fixture
    def device(self) -> TvmDevice:
        """Return this machine's OpenCL device."""
        return opencl()


def candidate(kind: str) -> Model:
    model = prepare(mobile(1))
    if kind == "float":
        return model
    return fully_quantized(model, StaticQuantizer() if kind == "static" else DynamicQuantizer())


def outputs(device: Device, model: Model) -> np.ndarray:
    program = device.load(model)
    # One at a time: dynamic quantization depends on what else is in a batch.
    rows = [program.run(each)[0] for each in random_samples(model, count=4).batches(1)]
    program.close()
    return np.concatenate(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "static", "dynamic"])
def test_a_phones_kernels_agree_with_onnx_runtime(board: int, kind: str) -> None:
    model = candidate(kind)
    there, here = outputs(phone(board), model), outputs(OnnxRuntimeDevice(), model)
    # Kernels of ONNX Runtime that multiply integers round otherwise.
    tolerance = 1e-5 if kind == "float" else 0.02
    np.testing.assert_allclose(there, here, rtol=0, atol=tolerance * np.abs(here).max())


QUICK = ["device.repeats=1", "device.warmup=0", "search=ladder", "precisions=[int8,float32]"]


def report_in(folder: Path) -> Any:
    (path,) = folder.glob("multirun/*/*/report.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_a_study_of_digits(seqto: Command, tmp_path: Path) -> None:
    words = ["device=opencl", "dataset.evaluation_size=40", "search.step=24", *QUICK]
    result = seqto(*words, "-m")
    assert result.code == 0, result.err
    assert "kernels: scheduled by dlight" in result.out
    found = report_in(tmp_path)["candidates"]
    assert [each["state"] for each in found] == ["COMPLETE", "COMPLETE"]
    assert min(each["metrics"]["accuracy"] for each in found) > 0.9


@pytest.mark.slow
def test_the_papers_command_runs_to_its_front(
    seqto: Command, board: int, tmp_path: Path, cache: Path
) -> None:
    """`seqto model=resnet50 device=mali -m`, with a small model in place of the real file."""
    place = cache / "models" / "onnxmodelzoo" / "legacy_models" / "main"
    path = place / "validated/vision/classification/resnet/model/resnet50-v1-12.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(resnet50(stem=8, stages=[(4, 2, 1)]).to_bytes())
    draw = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for index in range(24):
        pixels = draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{index}.png")
    words = ["model=resnet50", "device=mali", "-m", "model.sha256=null", "dataset.path=photos"]
    words += ["dataset.calibration_size=12", "dataset.evaluation_size=8", "task=classification"]
    words += ["device.linker=cc", f"device.host.mtriple={ANDROID['mtriple']}", f"device.key={KEY}"]
    words += [f"device.tracker=127.0.0.1:{board}", "search.step=99", *QUICK]
    result = seqto(*words)
    path.unlink()
    assert result.code == 0, result.err
    report = report_in(tmp_path)
    assert [each["state"] for each in report["candidates"]] == ["COMPLETE", "COMPLETE"]
    assert report["recommended"]
    assert "models:/seqto-resnet50-mali-static" in result.out


def test_the_runtime_is_not_built_twice() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "opencl_runtime.py"), "--tvm-source"]
    source = ROOT.parent / "shared" / "tvm-opencl"
    spec = importlib.util.find_spec("tvm")
    assert spec is not None and spec.origin is not None
    library = Path(spec.origin).parent / "lib" / "libtvm_runtime_opencl.so"
    if not source.exists() or not library.with_suffix(".key").exists():
        pytest.skip("needs the sources in ../shared/tvm-opencl")
    made = library.stat().st_mtime_ns
    done = subprocess.run([*script, str(source)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert library.stat().st_mtime_ns == made
    # The first device that TVM finds is named.
    assert "device:  pthread" in done.stdout or "device:  cpu" in done.stdout


def test_sources_of_something_else_are_refused(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "opencl_runtime.py"), "--tvm-source"]
    done = subprocess.run([*script, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "opencl_device_api.cc is missing" in done.stderr and "v0." in done.stderr
