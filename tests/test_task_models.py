"""Published and exported models through preparation, every quantizer and the parts of ranking."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx_models import op_types
from pypi_models import MODELS, published
from suite_quantizers import Prepared, tried
from task_models import CASES, PUBLISHED, Case

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ModelError
from seqto.graph.groups import run_as_one
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.float_prefixes import SharedPrefixes
from seqto.types import FLOAT32, INT8, Candidate, Model, Observed

QUANTIZERS = (StaticQuantizer(), DynamicQuantizer(), WeightOnlyQuantizer())

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_quantizer = pytest.mark.parametrize("quantizer", QUANTIZERS, ids=lambda each: each.name)

Feeds = list[dict[str, np.ndarray]]


def outputs(model: Model, feeds: Feeds) -> list[list[np.ndarray]]:
    """Return all outputs for each sample, computed as a study does it."""
    program = OnnxRuntimeDevice().load(model)
    return [[np.asarray(each) for each in program.run(feed)] for feed in feeds]


def noise(found: list[list[np.ndarray]], wanted: list[list[np.ndarray]]) -> float:
    """Return the noise in the first output in relation to its signal."""
    ours, theirs = (
        np.concatenate([each[0].reshape(-1) for each in side]) for side in (found, wanted)
    )
    return float(((ours - theirs) ** 2).sum() / (theirs.astype(np.float64) ** 2).sum())


@every_case
def test_preparation_keeps_outputs_and_size(case: Case) -> None:
    given = case.model()
    prepared = prepare(given)
    assert prepared.proto.opset_import[0].version >= 13
    assert "Constant" not in op_types(prepared)
    onnx.checker.check_model(prepared.proto, full_check=True)
    feeds = case.feeds(3)
    for found, wanted in zip(outputs(prepared, feeds), outputs(given, feeds), strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-4 * np.abs(other).max())
    # Shapes of activations are what quantizers need; they are in no candidate.
    del prepared.proto.graph.value_info[:]
    assert prepared.size < 1.012 * given.size


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_layers_are_as_many_as_described(case: Case) -> None:
    _, layers = StaticQuantizer(op_types=["Conv", "ConvTranspose", "Gemm", "MatMul"]).prepare(
        prepare(case.model())
    )
    assert len(layers) == MODELS[case.name].layers


def test_layers_that_are_all_inside_branches_are_refused() -> None:
    with pytest.raises(ModelError, match="layers are inside the branches of If") as caught:
        StaticQuantizer().prepare(prepare(published("silero")))
    assert "fixing what decides on it, 'dataset.constants={sr: ...}', or" in str(caught.value)


def mixture(subject: Prepared) -> Candidate:
    """Return the candidate whose groups of layers have all precisions in turn."""
    kernels = OnnxRuntimeDevice().kernels(subject.model)
    layers = run_as_one(subject.model, subject.layers, kernels)
    groups = list(dict.fromkeys(layer.group or layer.name for layer in layers))
    known = tried(subject.quantizer)
    precisions: Mapping[str, str] = {
        group: known[at % len(known)] for at, group in enumerate(groups)
    }
    return Candidate.of({layer.name: precisions[layer.group or layer.name] for layer in layers})


@pytest.mark.slow
@every_quantizer
@every_case
def test_candidates_are_valid_and_near_the_float_model(case: Case, quantizer: Quantizer) -> None:
    subject = Prepared(quantizer, prepare(case.model()), case.samples(6))
    feeds = case.feeds(6)
    wanted = outputs(subject.model, feeds)
    size = subject.excluding(*subject.names).size
    candidates = {
        "int8": subject.excluding(),
        "mixed": quantizer.quantize(subject.model, subject.ranges, mixture(subject)),
    }
    for model in candidates.values():
        onnx.checker.check_model(model.proto, full_check=True)
        found = outputs(model, feeds)
        assert all(np.isfinite(each).all() for sample in found for each in sample)
        assert 0 < noise(found, wanted) < 1
        # As on an x86 CPU without VNNI: ONNX Runtime then changes the weights.
        OnnxRuntimeDevice(precise_kernels="on").load(model)
    assert noise(outputs(subject.excluding(*subject.names), feeds), wanted) < 1e-9
    if case.name not in ("recurrent", "basic_pitch"):
        # Their layers are smaller than the names around them.
        assert candidates["int8"].size < 0.75 * size


@pytest.mark.slow
@every_quantizer
@every_case
def test_parts_of_a_changed_model_give_what_the_whole_gives(
    case: Case, quantizer: Quantizer, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Prepared(quantizer, prepare(case.model()), case.samples(2))
    feeds = case.feeds(2)
    first = subject.model.proto.graph.output[0].name
    runs = SharedPrefixes(subject.model, subject.samples, 2, Observed({first: 0}))
    wanted = [each[0][0] for each in outputs(subject.model, feeds)]
    for one, other in zip(runs.reference(), wanted, strict=True):
        np.testing.assert_allclose(one[first], other, atol=1e-5 * np.abs(other).max())
    for name in sorted({subject.names[at] for at in (0, len(subject.names) // 2, -1)}):
        alone = dict.fromkeys(subject.names, FLOAT32) | {name: INT8}
        changed = quantizer.quantize(subject.model, subject.ranges, Candidate.of(alone))
        whole = [each[0][0] for each in outputs(changed, feeds)]
        harm = max(np.abs(one - other).max() for one, other in zip(whole, wanted, strict=True))
        assert harm > 0
        for one, other in zip(runs.outputs(changed), whole, strict=True):
            # Rounding in another order may move a value to the next step of a later layer.
            np.testing.assert_allclose(one[first], other, atol=0.1 * harm)
    # No part was refused, which would only cost time, but much of it.
    assert caplog.records == []
