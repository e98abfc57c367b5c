"""EfficientNet-Lite0 with its ImageNet weights, on photos."""

from dataclasses import replace

import numpy as np
import pytest
from real_data import EFFICIENTNET_LITE0, IMAGENET_SAMPLE, requires_real_data

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice, has_vnni, is_x86
from seqto.graph.prepare import prepare
from seqto.measuring.evaluate import measure
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject, prepare_subject
from seqto.models.local import LocalModel
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tasks.classification import Classification
from seqto.types import Candidate, Model, Samples
from seqto.workspace import Workspace

pytestmark = [pytest.mark.real_model, requires_real_data]

PREPROCESS = ImagePreprocess(
    interpolation="bicubic", mean=[127.0] * 3, std=[128.0] * 3, scale=1.0, resize=256, crop=224
)


def device(precise_kernels: str = "auto") -> OnnxRuntimeDevice:
    """Return the CPU, with few repeats."""
    return OnnxRuntimeDevice(precise_kernels=precise_kernels, repeats=5)


@pytest.fixture(scope="module")
def parts() -> Parts:
    """Return the parts of a static study with 300 evaluation images."""
    return Parts(
        source=LocalModel(path=str(EFFICIENTNET_LITE0)),
        dataset=ImageFolder(
            path=str(IMAGENET_SAMPLE),
            preprocess=PREPROCESS,
            calibration_size=64,
            evaluation_size=300,
            chunk_size=10,
        ),
        quantizer=StaticQuantizer(),
        sensitivity=PaperSensitivity(samples=4),
        search=LadderSearch(),
        device=device(),
        task=Classification(),
    )


@pytest.fixture(scope="module")
def subject(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Return the model, calibrated, with its float outputs: the slow part, once."""
    return prepare_subject(parts, Workspace(tmp_path_factory.mktemp("workspace")))


@pytest.fixture(scope="module")
def int8(parts: Parts, subject: Subject) -> Model:
    """Return the fully quantized model."""
    candidate = Candidate.excluding(subject.layer_names, [])
    return parts.quantizer.quantize(subject.model, subject.ranges, candidate)


def test_float_accuracy_is_the_published_one(subject: Subject) -> None:
    assert 0.82 < subject.baseline["accuracy"] < 0.92
    assert len(subject.layers) == 50


def test_full_int8_disagrees_on_a_few_percent_at_most(int8: Model, subject: Subject) -> None:
    metrics = measure(int8, subject, device()).metrics
    assert 0.003 <= metrics["accuracy_loss"] <= 0.035
    assert 0.26 < metrics["size_ratio"] < 0.29
    assert abs(metrics["accuracy_drop"]) < 0.02


@pytest.mark.skipif(not is_x86() or has_vnni(), reason="this CPU's int8 kernels do not saturate")
def test_without_precise_kernels_it_is_far_worse(int8: Model, subject: Subject) -> None:
    few = _first(subject, 100)
    precise, saturating = (
        measure(int8, few, device(setting)).metrics["accuracy_loss"] for setting in ("auto", "off")
    )
    assert saturating >= precise + 0.03


def test_dynamic_quantization_runs(parts: Parts, subject: Subject) -> None:
    quantizer = DynamicQuantizer()
    model, layers = quantizer.prepare(prepare(parts.source.load()))
    assert "MatMul" in {layer.op_type for layer in layers}
    candidate = Candidate.excluding([layer.name for layer in layers], [layers[-1].name])
    quantized = quantizer.quantize(model, {}, candidate)
    few = replace(_first(subject, 10), batch=1)
    metrics = measure(quantized, few, device()).metrics
    assert metrics["accuracy_loss"] <= 0.3
    assert 0.25 < metrics["size_ratio"] < 0.6


def _first(subject: Subject, count: int) -> Subject:
    """Return the subject with its first samples only."""
    samples = subject.samples
    labels = None if samples.targets is None else np.asarray(samples.targets[:count])
    inputs = {name: array[:count] for name, array in samples.inputs.items()}
    return replace(
        subject,
        samples=Samples(inputs, samples.ids[:count], labels),
        reference={name: each[:count] for name, each in subject.reference.items()},
    )
