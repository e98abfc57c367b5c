"""Models that end in a softmax: their probabilities are not quantized."""

import numpy as np
import pytest
from onnx import helper
from onnx_models import residual, run
from quantizable_models import random_samples

from seqto.graph.prepare import prepare
from seqto.metrics.harm import Divergence
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model


def ending_in(operation: str) -> Model:
    """Return the residual model with this operation at its end."""
    model = residual()
    graph = model.proto.graph
    graph.node[-1].output[0] = "scores"
    graph.node.append(helper.make_node(operation, ["scores"], ["y"], "last", axis=1))
    return model


@pytest.mark.parametrize("operation", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    "quantizer", [StaticQuantizer(), DynamicQuantizer()], ids=lambda each: each.name
)
def test_probabilities_stay_in_float(quantizer: Quantizer, operation: str) -> None:
    model, layers = quantizer.prepare(prepare(ending_in(operation)))
    samples = random_samples(model, 32)
    ranges = quantizer.calibrate(model, samples)
    full = Candidate.excluding([layer.name for layer in layers], [])
    quantized = quantizer.quantize(model, ranges, full)
    (last,) = (node for node in quantized.proto.graph.node if "y" in node.output)
    assert last.op_type == operation
    if operation == "Softmax":
        inputs = dict(samples.inputs)
        (wanted,), (found,) = run(model, inputs), run(quantized, inputs)
        assert 0 < Divergence({"y": wanted}).per_sample({"y": found}).mean() < 0.01
        assert len(np.unique(found)) > 256
