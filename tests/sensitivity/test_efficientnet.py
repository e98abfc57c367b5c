"""Sensitivities of EfficientNet-Lite0 with its ImageNet weights, on photos."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from real_data import EFFICIENTNET_LITE0, IMAGENET_SAMPLE, requires_real_data

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject, prepare_subject, rank_layers
from seqto.metrics.harm import Divergence
from seqto.models.local import LocalModel
from seqto.protocols import Sensitivity
from seqto.quantizers.static import StaticQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.float_prefixes import SharedPrefixes
from seqto.sensitivity.local import LocalSensitivity
from seqto.sensitivity.stability import stability
from seqto.tasks.classification import Classification
from seqto.types import Arrays, Candidate, LayerScore, Model, Outputs, together
from seqto.workspace import Workspace

pytestmark = [pytest.mark.real_model, requires_real_data]

COUNT = 16


@pytest.fixture(scope="module")
def parts() -> Parts:
    """Return the parts of a static study with few images."""
    preprocess = ImagePreprocess(
        interpolation="bicubic", mean=[127.0] * 3, std=[128.0] * 3, scale=1.0, resize=256, crop=224
    )
    return Parts(
        source=LocalModel(path=str(EFFICIENTNET_LITE0)),
        dataset=ImageFolder(
            path=str(IMAGENET_SAMPLE),
            preprocess=preprocess,
            calibration_size=32,
            evaluation_size=8,
            chunk_size=8,
        ),
        quantizer=StaticQuantizer(),
        sensitivity=DivergenceSensitivity(samples=COUNT),
        search=LadderSearch(),
        device=OnnxRuntimeDevice(),
        task=Classification(),
    )


@pytest.fixture(scope="module")
def subject(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Return the model, calibrated."""
    return prepare_subject(parts, Workspace(tmp_path_factory.mktemp("workspace")))


@pytest.fixture(scope="module")
def scores(parts: Parts, subject: Subject) -> tuple[LayerScore, ...]:
    """Return the layers by divergence, computed once."""
    return scores_by(parts.sensitivity, parts, subject)


def scores_by(sensitivity: Sensitivity, parts: Parts, subject: Subject) -> tuple[LayerScore, ...]:
    """Return the layers, the most hurt first."""
    return sensitivity.score(
        *(subject.model, subject.layers, parts.quantizer, subject.ranges),
        *(subject.calibration, subject.observed, subject.task),
    )


def samples(subject: Subject, count: int) -> list[Arrays]:
    """Return the first calibration samples one by one."""
    return list(islice(subject.calibration.batches(1), count))


def outputs(model: Model, inputs: Sequence[Arrays]) -> Outputs:
    """Return what the model says of each sample, run from its inputs to its outputs."""
    program = OnnxRuntimeDevice().load(model)
    return {"logits": np.concatenate([program.run(each)[0] for each in inputs])}


def int8(parts: Parts, subject: Subject, names: Sequence[str]) -> Model:
    """Return the model with these layers in int8."""
    left = [name for name in subject.layer_names if name not in names]
    candidate = Candidate.excluding(subject.layer_names, left)
    return parts.quantizer.quantize(subject.model, subject.ranges, candidate)


def test_shared_prefixes_give_what_the_whole_model_gives(parts: Parts, subject: Subject) -> None:
    inputs = samples(subject, 4)
    runs = SharedPrefixes(subject.model, subject.calibration, 4, subject.observed)
    harm = Divergence(outputs(subject.model, inputs))
    # The first one, one whose skip connections reach far, and the last one.
    for name in ("/_conv_stem/Conv", "/_blocks.10/_project_conv/Conv", "/_fc/Gemm"):
        model = int8(parts, subject, [name])
        wanted = harm.per_sample(outputs(model, inputs)).mean()
        # Float noise turns single roundings to 8 bits around.
        assert harm.per_sample(together(runs.outputs(model), 4)).mean() == pytest.approx(
            wanted, rel=0.1
        )


def test_costs_add_up(parts: Parts, subject: Subject, scores: tuple[LayerScore, ...]) -> None:
    inputs = samples(subject, COUNT)
    harm = Divergence(outputs(subject.model, inputs))
    measured = harm.per_sample(outputs(int8(parts, subject, subject.layer_names), inputs)).mean()
    predicted = sum(score.costs["int8"] for score in scores)
    # A layer that is quantized alone pays for conversions that it shares with its neighbours
    # otherwise: in sum up to 2.8 times as much, as scripts/benchmark_front.py shows.
    assert measured / 2 < predicted < measured * 3


def test_the_ranking_is_stable(scores: tuple[LayerScore, ...]) -> None:
    assert len(scores) == 50
    assert (stability(scores) or 0) > 0.9


def test_few_samples_rank_alike(
    parts: Parts, subject: Subject, scores: tuple[LayerScore, ...]
) -> None:
    start = time.process_time()
    few = scores_by(DivergenceSensitivity(samples=4), parts, subject)
    # A whole study has 60 s; 32 samples take five times the runs of these, not the sessions.
    assert time.process_time() - start < 15
    most = {score.layer.name for score in scores[:10]}
    assert len(most & {score.layer.name for score in few[:10]}) >= 7


def test_the_evaluation_images_are_not_looked_at(
    parts: Parts, subject: Subject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert not set(subject.calibration.ids) & set(subject.samples.ids)
    quick = replace(parts, sensitivity=LocalSensitivity(samples=2))
    evaluation = subject.samples.inputs
    without = replace(
        subject,
        samples=replace(
            subject.samples,
            inputs={name: np.full_like(array, np.nan) for name, array in evaluation.items()},
        ),
        reference={"logits": np.full_like(subject.reference["logits"], np.nan)},
    )
    rankings = [
        rank_layers(quick, each, Workspace(tmp_path_factory.mktemp("ranking")))
        for each in (subject, without)
    ]
    assert rankings[0] == rankings[1]
