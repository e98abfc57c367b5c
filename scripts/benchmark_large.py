"""A model above 2 GB through every step of a study: seconds, sizes and peak memory.

The model is a chain of dense layers with seeded weights, generated in a temporary folder:

    python scripts/benchmark_large.py --gigabytes 2.2
"""

import argparse
import contextlib
import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.load import load_model
from seqto.graph.prepare import prepare
from seqto.measuring.outputs import run_all
from seqto.protocols import Quantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import FLOAT32, INT4, INT8, Candidate, Layer, Model, Observed, Ranges, Samples

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_QUANTIZERS = {each.name: each for each in (WeightOnlyQuantizer(), StaticQuantizer())}


def main() -> None:
    """Run every step once and print what it took."""
    options = _options()
    print(f"{'':34}{'seconds':>9}{'GB held':>9}{'GB peak':>9}")
    with tempfile.TemporaryDirectory(prefix="seqto-benchmark-") as folder:
        path = Path(folder) / "model.onnx"
        with _measured("generate"):
            _generate(path, options.width, round(options.gigabytes * 1e9 / 4 / options.width**2))
        samples = _samples(options.width, options.samples)
        with _measured("load"):
            model = load_model(path, "large")
        with _measured("size and sha256"):
            print(f"  {model.size / 1e9:.3f} GB, {model.digest[:16]}, too large: {model.is_large}")
        with _measured("prepare"):
            floating = prepare(model)
        del model
        reference = _run("float", floating, samples)
        for quantizer in map(_QUANTIZERS.__getitem__, options.quantizations):
            with _measured(f"{quantizer.name}: prepare"):
                prepared, layers = quantizer.prepare(floating)
            with _measured(f"{quantizer.name}: calibrate"):
                ranges = quantizer.calibrate(prepared, samples)
            _candidates(quantizer, prepared, layers, ranges, samples, reference)
            del prepared


def _candidates(
    quantizer: Quantizer,
    model: Model,
    layers: Sequence[Layer],
    ranges: Ranges,
    samples: Samples,
    reference: np.ndarray,
) -> None:
    """Quantize, load and run some candidates."""
    names = [layer.name for layer in layers]
    chosen = {
        "all int8": dict.fromkeys(names, INT8),
        "all int4": dict.fromkeys(names, INT4),
        # So that the quantized model is too large for one file as well.
        "one int8": dict.fromkeys(names, FLOAT32) | {names[0]: INT8},
    }
    if quantizer.name == "static":
        del chosen["all int4"]
    for title, precisions in chosen.items():
        label = f"{quantizer.name}, {title}"
        with _measured(f"{label}: quantize"):
            quantized = quantizer.quantize(model, ranges, Candidate.of(precisions))
        with _measured(f"{label}: sha256"):
            print(f"  {quantized.size / 1e9:.3f} GB, {quantized.digest[:16]}")
        found = _run(label, quantized, samples)
        error = float(np.abs(found - reference).max() / np.abs(reference).max())
        print(f"  largest difference from float: {error:.2e} of its largest output")
        del quantized


def _run(label: str, model: Model, samples: Samples) -> np.ndarray:
    with _measured(f"{label}: session"):
        program = OnnxRuntimeDevice().load(model)
    with _measured(f"{label}: run {len(samples)} samples"):
        (name,) = (each.name for each in model.proto.graph.output)
        outputs = run_all(program, model, samples, 1, Observed({name: 0}))
    program.close()
    return np.asarray(outputs[name])


def _generate(path: Path, width: int, count: int) -> None:
    """Write a chain of Gemm and Relu, and its weights to a second file, one layer at a time."""
    random = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    with path.with_suffix(".bin").open("wb") as file:
        for index in range(count):
            for name, shape in ((f"w{index}", (width, width)), (f"b{index}", (width,))):
                values = random.standard_normal(shape, np.float32) * np.sqrt(2 / width)
                weights.append(_external(name, shape, path.with_suffix(".bin").name, file.tell()))
                file.write(values.astype(np.float32).tobytes())
            gemm = [before, f"w{index}", f"b{index}"], [f"y{index}"]
            nodes.append(helper.make_node("Gemm", *gemm, f"dense{index}"))
            nodes.append(helper.make_node("Relu", [f"y{index}"], [f"r{index}"], f"relu{index}"))
            before = f"r{index}"
    values = (helper.make_tensor_value_info(name, 1, ["N", width]) for name in ("x", before))
    graph = helper.make_graph(nodes, "chain", [next(values)], [next(values)], weights)
    opsets = [helper.make_opsetid("", 21)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )


def _external(name: str, shape: tuple[int, ...], location: str, start: int) -> onnx.TensorProto:
    tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, raw_data=b"")
    set_external_data(tensor, location, start, int(np.prod(shape)) * 4)
    tensor.ClearField("raw_data")
    return tensor


def _samples(width: int, count: int) -> Samples:
    random = np.random.default_rng(1)
    inputs = {"x": random.standard_normal((count, width), np.float32)}
    return Samples(inputs, tuple(map(str, range(count))))


@contextlib.contextmanager
def _measured(label: str) -> Iterator[None]:
    """Print the seconds of a block, the memory held after it and its peak."""
    gc.collect()
    # If the system does not allow it, the peak is that of the whole run so far.
    with contextlib.suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK)
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    gc.collect()
    held, peak = (_memory(name) / 1e9 for name in ("VmRSS", "VmHWM"))
    print(f"{label:34}{seconds:9.1f}{held:9.2f}{peak:9.2f}", flush=True)


def _memory(name: str) -> int:
    (line,) = (each for each in _STATUS.read_text().splitlines() if each.startswith(name))
    return int(line.split()[1]) * 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.2, help="size of the model's weights")
    parser.add_argument("--width", type=int, default=4096, help="width of its layers")
    parser.add_argument("--samples", type=int, default=4, help="to calibrate with and to run")
    names = list(_QUANTIZERS)
    parser.add_argument("--quantizations", nargs="+", choices=names, default=names)
    return parser.parse_args()


if __name__ == "__main__":
    main()
