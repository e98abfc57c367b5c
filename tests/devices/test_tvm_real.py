"""TVM agrees with ONNX Runtime: the embedded model in every precision, and EfficientNet-Lite0."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_data import EFFICIENTNET_LITE0, IMAGENET_SAMPLE, requires_real_data

from seqto.datasets.digits import DigitsDataset
from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.tvm_device import TvmDevice
from seqto.graph.load import input_specs, load_model
from seqto.graph.prepare import prepare
from seqto.models.embedded import EmbeddedModel
from seqto.protocols import Device, Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Candidate, Model, Samples, Splits

AGREEMENT = 0.98


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path_factory.getbasetemp() / "tvm"))


def top(device: Device, model: Model, samples: Samples) -> np.ndarray:
    program = device.load(model)
    # One at a time: dynamic quantization depends on what else is in a batch.
    outputs = np.concatenate([program.run(each)[0] for each in samples.batches(1)])
    program.close()
    return outputs.argmax(axis=1)


def agreement(model: Model, samples: Samples) -> float:
    here = top(TvmDevice(), model, samples)
    there = top(OnnxRuntimeDevice(precise_kernels="on"), model, samples)
    return float(np.mean(here == there))


def quantized(model: Model, splits: Splits, quantizer: Quantizer, precision: str) -> Model:
    ready, layers = quantizer.prepare(model)
    ranges = quantizer.calibrate(ready, splits.calibration)
    chosen = Candidate.of({layer.name: precision for layer in layers})
    return quantizer.quantize(ready, ranges, chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantizer", "precision"),
    [
        (StaticQuantizer(), "float32"),
        (StaticQuantizer(), "int8"),
        (StaticQuantizer(), "int16"),
        (DynamicQuantizer(), "int8"),
        (WeightOnlyQuantizer(), "int4"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_digits_agree_in_every_precision(quantizer: Quantizer, precision: str) -> None:
    model = prepare(EmbeddedModel().load())
    splits = DigitsDataset(evaluation_size=150).load(input_specs(model))
    assert agreement(quantized(model, splits, quantizer, precision), splits.evaluation) >= AGREEMENT


@pytest.fixture(scope="module")
def photos() -> tuple[Model, Splits]:
    """Return EfficientNet-Lite0 and photos to agree on."""
    model = prepare(load_model(Path(EFFICIENTNET_LITE0), "efficientnet-lite0"))
    dataset = ImageFolder(
        path=str(IMAGENET_SAMPLE),
        preprocess=ImagePreprocess(
            interpolation="bicubic", scale=1.0, mean=[127.0] * 3, std=[128.0] * 3
        ),
        calibration_size=20,
        evaluation_size=50,
    )
    return model, dataset.load(input_specs(model))


@pytest.mark.slow
@pytest.mark.real_model
@requires_real_data
@pytest.mark.parametrize(
    ("quantizer", "precision"),
    [(StaticQuantizer(), "float32"), (StaticQuantizer(), "int8"), (DynamicQuantizer(), "int8")],
    ids=["float", "static", "dynamic"],
)
def test_efficientnet_agrees(
    photos: tuple[Model, Splits], quantizer: Quantizer, precision: str
) -> None:
    model, splits = photos
    candidate = quantized(model, splits, quantizer, precision)
    assert agreement(candidate, splits.evaluation) >= AGREEMENT
