"""What each device gives for one model: agreement with ONNX Runtime, latency, failures survived.

The float, static and dynamic candidates of EfficientNet-Lite0 run on the CPU through ONNX Runtime,
on TVM here and behind a tracker, on OpenCL and on the kernels of a Mali GPU (both on whatever
OpenCL device there is, such as PoCL), and on OpenVINO where the environment has it. A device that
is not there has the reason in its row. Behind the tracker the process that serves a session is
killed once while samples run, and the outputs still have to be the same.

    python scripts/benchmark_devices.py --images 20 --devices cpu,tvm,tvm_rpc
    export OCL_ICD_VENDORS=<folder of PoCL's .icd>
    python scripts/benchmark_devices.py --devices opencl,mali --images 4
    <with onnxruntime-openvino>/bin/python scripts/benchmark_devices.py --devices cpu,openvino

Latency is shown where it means something: PoCL's says nothing of a GPU.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.tvm_device import TvmDevice
from seqto.devices.tvm_local import HOST, LocalServers, local_servers
from seqto.errors import SeqtoError
from seqto.graph.load import input_specs, load_model
from seqto.graph.prepare import prepare
from seqto.protocols import Device, HasNeeds, Program, Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model, Samples

DATA = Path(__file__).parents[2] / "shared" / "data"
KEY = "benchmark"
ANDROID = "x86_64-linux-android"
"""A host for which TVM chooses a phone's kernels, but which is this machine."""

OPENVINO = "OpenVINOExecutionProvider"


@dataclass(frozen=True)
class Row:
    """What one device gave for one candidate."""

    device: str
    model: str
    same: float
    difference: float
    latency_ms: float | None
    survived: str = ""

    def __str__(self) -> str:
        latency = "" if self.latency_ms is None else f"{self.latency_ms:.1f}"
        figures = f"{self.same:8.1%} {self.difference:10.1e} {latency:>10}"
        return f"{self.device:10} {self.model:8} {figures}  {self.survived}".rstrip()


HEAD = f"{'device':10} {'model':8} {'same top':>8} {'difference':>10} {'latency ms':>10}  survived"


def main() -> None:
    """Print a row for each device and candidate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=DATA / "models" / "efficientnet-lite0.onnx")
    parser.add_argument("--photos", type=Path, default=DATA / "imagenet-sample")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--devices", default=",".join(DEVICES), help="some of them, with commas")
    parser.add_argument("--models", default="float,static,dynamic", help="the same")
    chosen = parser.parse_args()
    # Compile now, instead of using the user's cache.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQTO_CACHE"] = folder
        model = prepare(load_model(chosen.model, chosen.model.stem))
        splits = photos(chosen.photos, chosen.images).load(input_specs(model))
        made = candidates(model, splits.calibration, chosen.models.split(","))
        print(HEAD, flush=True)
        for name in chosen.devices.split(","):
            compare(name, made, splits.evaluation, chosen.repeats)


def photos(path: Path, images: int) -> ImageFolder:
    """Return the photos, as EfficientNet-Lite0 takes them."""
    how = ImagePreprocess(interpolation="bicubic", scale=1.0, mean=[127.0] * 3, std=[128.0] * 3)
    return ImageFolder(path=str(path), preprocess=how, calibration_size=50, evaluation_size=images)


def candidates(model: Model, calibration: Samples, names: list[str]) -> dict[str, Model]:
    """Return the float model and its fully quantized versions."""
    found = {"float": model}
    quantizers: list[Quantizer] = [StaticQuantizer(), DynamicQuantizer()]
    for quantizer in quantizers:
        if quantizer.name in names:
            ready, layers = quantizer.prepare(model)
            ranges = quantizer.calibrate(ready, calibration)
            full = Candidate.excluding([layer.name for layer in layers], [])
            found[quantizer.name] = quantizer.quantize(ready, ranges, full)
    return {name: each for name, each in found.items() if name in names}


def compare(name: str, made: Mapping[str, Model], samples: Samples, repeats: int) -> None:
    """Print the rows of one device, or why it has none."""
    try:
        with DEVICES[name](repeats) as device:
            if isinstance(device, HasNeeds):
                lacks = [each for each in device.needs(wait=True).values() if each]
                if lacks:
                    print(f"{name:10} not run, it needs {lacks[0]}", flush=True)
                    return
            for kind, model in made.items():
                print(attempt(name, kind, device, model, samples), flush=True)
    except (SeqtoError, ImportError, OSError) as error:
        print(f"{name:10} not run: {error}", flush=True)


def attempt(name: str, kind: str, device: Device, model: Model, samples: Samples) -> Row | str:
    """Return the row of a candidate, or why it has none: the others run all the same."""
    try:
        return row(name, kind, device, model, samples)
    except SeqtoError as error:
        return f"{name:10} {kind:8} not run: {error}"


def row(name: str, kind: str, device: Device, model: Model, samples: Samples) -> Row:
    """Run a candidate on a device, and compare it with ONNX Runtime."""
    # Integers exactly: without it, x86 CPUs without VNNI saturate.
    wanted = outputs(OnnxRuntimeDevice(precise_kernels="on").load(model), samples)
    program = device.load(model)
    try:
        servers = SERVERS.get(name)
        survived = "killed session" if servers and kind == "float" else ""
        found = outputs(program, samples, servers() if servers and survived else None)
        timed = name not in UNTIMED
        latency = program.time(next(samples.batches(1))).median_ms if timed else None
    finally:
        program.close()
    same = float(np.mean(found.argmax(axis=1) == wanted.argmax(axis=1)))
    return Row(name, kind, same, float(np.abs(found - wanted).max()), latency, survived)


def outputs(
    program: Program, samples: Samples, disturbed: LocalServers | None = None
) -> np.ndarray:
    """Run the samples one by one, as dynamic quantization depends on the whole batch."""
    found = []
    for index, sample in enumerate(samples.batches(1)):
        if disturbed is not None and index == len(samples) // 2:
            kill_session(disturbed)
        found.append(program.run(sample)[0])
    return np.concatenate(found)


def kill_session(servers: LocalServers) -> None:
    """Kill the process that serves the session, as a crash over there does."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True)
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    (server,) = (pid for pid, _, args in rows if f"--tracker {HOST}:{servers.port}" in args)
    (listener,) = (pid for pid, parent, _ in rows if parent == server)
    for pid in [pid for pid, parent, _ in rows if parent == listener]:
        os.kill(int(pid), signal.SIGKILL)


@contextmanager
def cpu(repeats: int) -> Iterator[Device]:
    """Yield ONNX Runtime on this CPU, as `device=cpu` has it."""
    yield OnnxRuntimeDevice(repeats=repeats)


@contextmanager
def tvm(repeats: int) -> Iterator[Device]:
    """Yield TVM on this CPU."""
    yield TvmDevice(repeats=repeats)


@contextmanager
def tvm_rpc(repeats: int) -> Iterator[Device]:
    """Yield TVM behind a tracker and a server on loopback."""
    yield TvmDevice(name="tvm_rpc", key=KEY, start_local=True, threads=1, repeats=repeats)


@contextmanager
def opencl(repeats: int) -> Iterator[Device]:
    """Yield this machine's OpenCL device."""
    target = {"kind": "opencl"}
    yield TvmDevice(name="opencl", target=target, seconds=1800, compile_seconds=1800)


@contextmanager
def mali(repeats: int) -> Iterator[Device]:
    """Yield a Mali GPU's kernels behind a tracker, on this machine's OpenCL device."""
    servers = local_servers("mali", 1)
    try:
        yield TvmDevice(
            name="mali",
            target={"kind": "opencl", "device": "mali"},
            host={"kind": "llvm", "mtriple": ANDROID},
            tracker=f"{HOST}:{servers.port}",
            key="mali",
            seconds=1800,
            session_seconds=600,
            chunk_size=4,
        )
    finally:
        servers.stop()


@contextmanager
def openvino(repeats: int) -> Iterator[Device]:
    """Yield OpenVINO's execution provider; raise where this onnxruntime does not have it."""
    options = {"device_type": "CPU"}
    yield OnnxRuntimeDevice(
        name="openvino", provider=OPENVINO, options=options, isolated=True, repeats=repeats
    )


DEVICES: dict[str, Callable[[int], object]] = {
    each.__name__: each for each in (cpu, tvm, tvm_rpc, opencl, mali, openvino)
}
"""The devices, by name."""

SERVERS = {"tvm_rpc": lambda: local_servers(KEY, 1)}
"""Devices whose own server can be disturbed."""

UNTIMED = ("opencl", "mali")
"""Devices whose latency says nothing, as PoCL stands in for a GPU."""


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"{time.monotonic() - start:.0f} s in all", file=sys.stderr)
