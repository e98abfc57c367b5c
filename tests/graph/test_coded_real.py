"""The whole EfficientNet-Lite0 in coded weights."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from real_data import EFFICIENTNET_LITE0, requires_real_data

from seqto.graph.codebooks import frequencies
from seqto.graph.grids import entropy, on_grid
from seqto.graph.layers import reduced_axes, weight_of
from seqto.graph.nodes import initializers
from seqto.graph.prepare import prepare
from seqto.models.local import LocalModel
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Candidate, Layer, Model

pytestmark = [pytest.mark.real_model, requires_real_data]

# In a process of its own, whose peak is that of the session alone.
_LOAD = """
import resource, sys, time
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
start = time.process_time()
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.fixture(scope="module")
def ready() -> tuple[Model, tuple[Layer, ...]]:
    """Return the float model and its layers."""
    return WeightOnlyQuantizer().prepare(prepare(LocalModel(path=str(EFFICIENTNET_LITE0)).load()))


@pytest.fixture(scope="module")
def coded(ready: tuple[Model, tuple[Layer, ...]]) -> Model:
    """Return the model with every layer coded."""
    model, layers = ready
    chosen = Candidate.of({layer.name: "coded_0.5" for layer in layers})
    return WeightOnlyQuantizer().quantize(model, {}, chosen)


def test_everything_is_decoded_exactly_at_load(
    ready: tuple[Model, tuple[Layer, ...]], coded: Model, tmp_path: Path
) -> None:
    model, layers = ready
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(coded.to_bytes(), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(tmp_path / "optimized.onnx").graph
    left = {node.op_type for node in graph.node}
    assert left <= {"Conv", "Clip", "Add", "GlobalAveragePool", "Reshape", "Gemm"}
    found, constants = initializers(graph), initializers(model.proto.graph)
    readers = {node.name: node for node in graph.node}
    for node in model.proto.graph.node:
        weight = weight_of(node, constants)
        if node.name in {layer.name for layer in layers} and weight is not None:
            grid = on_grid(numpy_helper.to_array(weight), reduced_axes(node, weight), 0.5)
            decoded = numpy_helper.to_array(found[readers[node.name].input[1]])
            np.testing.assert_array_equal(decoded, grid.values)


def test_the_file_is_near_the_entropy(ready: tuple[Model, tuple[Layer, ...]], coded: Model) -> None:
    model, layers = ready
    constants = initializers(model.proto.graph)
    bits = 0.0
    for node in model.proto.graph.node:
        weight = weight_of(node, constants)
        if weight is not None:
            grid = on_grid(numpy_helper.to_array(weight), reduced_axes(node, weight), 0.5)
            bits += grid.integers.size * entropy(frequencies(grid.integers))
    rest = coded.size - bits / 8
    assert 0 < rest < 0.01 * model.size
    weights = sum(layer.weight_bytes for layer in layers)
    planned = sum(layer.coded_bytes["coded_0.5"] for layer in layers) - weights
    assert model.size + planned == pytest.approx(coded.size, rel=0.02)


def test_loading_takes_little_time_and_memory(
    ready: tuple[Model, tuple[Layer, ...]], coded: Model, tmp_path: Path
) -> None:
    peaks = []
    for name, model in {"float": ready[0], "coded": coded}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.to_bytes())
        printed = subprocess.check_output([sys.executable, "-c", _LOAD, str(path)], text=True)
        seconds, peak = map(float, printed.split())
        # Measured 0.3, but machines differ.
        assert seconds < 1
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 150 * 2**20
