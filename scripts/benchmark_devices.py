"""EfficientNet-Lite0 on TVM's CPU target: its speed, and whether it agrees with ONNX Runtime.

One run compiles the float model with and without seqto's schedule and times both, then compares the
predictions of TVM and ONNX Runtime for the float, static and dynamic model. Both run the integers
exactly (`precise_kernels=on`): without it, x86 CPUs without VNNI saturate.

    python scripts/benchmark_devices.py --images 50
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.tvm_device import TvmDevice
from seqto.graph.load import input_specs, load_model
from seqto.graph.prepare import prepare
from seqto.protocols import Device, Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model, Samples

DATA = Path(__file__).parents[2] / "shared" / "data"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DATA / "models" / "efficientnet-lite0.onnx")
    parser.add_argument("--photos", type=Path, default=DATA / "imagenet-sample")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    # Compile now, instead of using the user's cache.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQTO_CACHE"] = folder
        compare(arguments.model, arguments.photos, arguments.images, arguments.repeats)


def compare(path: Path, photos: Path, images: int, repeats: int) -> None:
    """Print the latency of TVM's code, and how often it agrees with ONNX Runtime."""
    model = prepare(load_model(path, path.stem))
    dataset = ImageFolder(
        path=str(photos),
        preprocess=ImagePreprocess(
            interpolation="bicubic", scale=1.0, mean=[127.0] * 3, std=[128.0] * 3
        ),
        calibration_size=50,
        evaluation_size=images,
    )
    splits = dataset.load(input_specs(model))
    times(model, splits.evaluation, repeats)
    agreements(model, splits.calibration, splits.evaluation)


def times(model: Model, samples: Samples, repeats: int) -> None:
    """Print the latency of unscheduled and scheduled code, and of ONNX Runtime."""
    devices: dict[str, Device] = {
        "tvm, unscheduled": TvmDevice(scheduled=False, warmup=1, repeats=repeats),
        "tvm, scheduled": TvmDevice(repeats=repeats),
        "onnxruntime, 1 thread": OnnxRuntimeDevice(repeats=repeats),
    }
    print(f"{'float model on':24} {'latency ms':>10} {'load s':>8}")
    found = {}
    for name, device in devices.items():
        start = time.perf_counter()
        program = device.load(model)
        loading = time.perf_counter() - start
        found[name] = program.time(next(samples.batches(1))).median_ms
        program.close()
        print(f"{name:24} {found[name]:10.1f} {loading:8.1f}", flush=True)
    ratio = found["tvm, unscheduled"] / found["tvm, scheduled"]
    print(f"the schedule makes it {ratio:.1f} times faster\n", flush=True)


def agreements(model: Model, calibration: Samples, samples: Samples) -> None:
    """Print how often TVM and ONNX Runtime have the same top class."""
    print(f"{'model':10} {'same top class':>14} of {len(samples)} images", flush=True)
    for name, candidate in candidates(model, calibration).items():
        here = _top(TvmDevice(), candidate, samples)
        there = _top(OnnxRuntimeDevice(precise_kernels="on"), candidate, samples)
        print(f"{name:10} {np.mean(here == there):14.3f}", flush=True)


def candidates(model: Model, calibration: Samples) -> dict[str, Model]:
    """Return the float model and its fully quantized versions."""
    found = {"float": model}
    quantizers: list[Quantizer] = [StaticQuantizer(), DynamicQuantizer()]
    for quantizer in quantizers:
        ready, layers = quantizer.prepare(model)
        ranges = quantizer.calibrate(ready, calibration)
        full = Candidate.excluding([layer.name for layer in layers], [])
        found[quantizer.name] = quantizer.quantize(ready, ranges, full)
    return found


def _top(device: Device, model: Model, samples: Samples) -> np.ndarray:
    program = device.load(model)
    # One sample at a time, because dynamic quantization depends on the whole batch.
    outputs = [program.run(sample)[0] for sample in samples.batches(1)]
    program.close()
    return np.concatenate(outputs).argmax(axis=1)


if __name__ == "__main__":
    main()
