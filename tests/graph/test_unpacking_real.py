"""EfficientNet-Lite0 in stored weights, unpacked once."""

from collections import Counter

import numpy as np
import onnxruntime
import pytest
from real_data import EFFICIENTNET_LITE0, requires_real_data

from seqto.graph.prepare import prepare
from seqto.graph.unpacking import unpacked
from seqto.models.local import LocalModel
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import FLOAT32, Candidate, Model

pytestmark = [pytest.mark.real_model, requires_real_data]

STORED = [each for each in WeightOnlyQuantizer().precisions if each != FLOAT32]


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """Return the float model, and that of each precision that stores weights."""
    quantizer = WeightOnlyQuantizer()
    model, layers = quantizer.prepare(prepare(LocalModel(path=str(EFFICIENTNET_LITE0)).load()))
    candidates = {
        each: Candidate.of({layer.name: each for layer in layers}) for each in (FLOAT32, *STORED)
    }
    return {name: quantizer.quantize(model, {}, each) for name, each in candidates.items()}


def outputs(model: Model) -> np.ndarray:
    images = np.random.default_rng(3).standard_normal((4, 3, 224, 224), np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.to_bytes(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"images": images})[0])


def operations(model: Model) -> Counter[str]:
    """Return how many there are of each operation, model-local functions among them."""
    return Counter(node.op_type for node in model.proto.graph.node)


@pytest.mark.parametrize("precision", STORED)
def test_outputs_are_the_same_bit_for_bit(models: dict[str, Model], precision: str) -> None:
    np.testing.assert_array_equal(outputs(unpacked(models[precision])), outputs(models[precision]))


@pytest.mark.parametrize("precision", STORED)
def test_nothing_is_left_to_unpack(models: dict[str, Model], precision: str) -> None:
    plain = unpacked(models[precision])
    # The operations of the float model, on weights of its size: it loads as fast.
    assert plain.size == pytest.approx(models[FLOAT32].size, rel=0.01)
    assert operations(plain) == operations(models[FLOAT32])
    assert operations(models[precision]) != operations(plain)
