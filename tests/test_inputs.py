"""Whole studies of models that are fed otherwise: several inputs, integers, a fixed batch."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import build, residual, run, weight
from quantizable_models import with_batch
from tiny_studies import Lab

from seqto.datasets.generated import RandomDataset
from seqto.errors import ModelError
from seqto.measuring.subject import rank_layers
from seqto.protocols import Quantizer, Sensitivity
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.local import LocalSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tracking.memory import MemoryTracker
from seqto.types import Model, Samples, TrialState

SENSITIVITIES = [
    DivergenceSensitivity(samples=8),
    LocalSensitivity(samples=8),
    PaperSensitivity(samples=8),
]


def two_inputs() -> Model:
    """Return a classifier of token ids (int64) and of features (float): `dense` and `head`."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"], "embedding"),
        helper.make_node("ReduceMean", ["words"], ["bag"], "mean", axes=[1], keepdims=0),
        helper.make_node("Gemm", ["features", "dense_w"], ["d"], "dense"),
        helper.make_node("Add", ["bag", "d"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "head_w"], ["y"], "head"),
    ]
    weights = [weight("table", 50, 16), weight("dense_w", 8, 16), weight("head_w", 16, 5)]
    model = build(
        nodes, weights, {"features": ["N", 8]}, {"y": ["N", 5]}, name="two_inputs", opset=13
    )
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 6])
    model.proto.graph.input.insert(0, ids)
    return model


def lab(folder: Path, model: Model, **parts: object) -> Lab:
    """Return a lab of this model on random samples."""
    # Four are judged on and eight teach: whole batches, which no copies of a sample fill up.
    dataset = RandomDataset(calibration_size=12, evaluation_size=10, integers=50)
    return Lab.at(folder, model, dataset=dataset, **parts)


@pytest.mark.parametrize(
    ("quantizer", "sensitivity"),
    [
        *itertools.product([StaticQuantizer(), DynamicQuantizer()], SENSITIVITIES),
        (WeightOnlyQuantizer(), SENSITIVITIES[0]),
    ],
    ids=lambda each: each.name,
)
def test_several_inputs_are_fed_by_name(
    tmp_path: Path, quantizer: Quantizer, sensitivity: Sensitivity
) -> None:
    tested = lab(tmp_path, two_inputs(), quantizer=quantizer, sensitivity=sensitivity)
    assert set(tested.subject.layer_names) == {"embedding", "dense", "head"}
    inputs = dict(tested.subject.samples.inputs)
    np.testing.assert_allclose(
        tested.subject.reference["y"], run(two_inputs(), inputs)[0], rtol=1e-4, atol=1e-5
    )
    outcome = tested.run(MemoryTracker())
    assert [trial.state for trial in outcome.record.trials] == [TrialState.COMPLETE] * 4
    assert outcome.record.trials[-1].metrics["accuracy_loss"] == 0


@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=lambda each: each.name)
def test_a_fixed_batch_ranks_as_a_free_one(tmp_path: Path, sensitivity: Sensitivity) -> None:
    scores = []
    for model in (residual(), with_batch(4)):
        tested = lab(tmp_path / str(len(scores)), model, sensitivity=sensitivity)
        ranking = rank_layers(tested.parts, tested.subject, tested.workspace)
        scores.append({each.layer.name: each.score for each in ranking})
    assert scores[1] == pytest.approx(scores[0], rel=0.02, abs=1e-3)


@pytest.mark.parametrize(
    "quantizer", [StaticQuantizer(), DynamicQuantizer()], ids=lambda each: each.name
)
def test_a_fixed_batch_is_studied(tmp_path: Path, quantizer: Quantizer) -> None:
    tested = lab(tmp_path, with_batch(4), quantizer=quantizer, search=LadderSearch(maximum=1))
    outcome = tested.run(MemoryTracker())
    assert [trial.state for trial in outcome.record.trials] == [TrialState.COMPLETE] * 2


def test_the_last_batch_is_filled_up() -> None:
    samples = Samples({"x": np.arange(10)}, tuple("abcdefghij"), fixed_batch=4)
    assert [list(each["x"]) for each in samples.batches(1)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 9, 9],
    ]
    assert [list(each["x"]) for each in samples.first_batches(5)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_inputs_that_do_not_agree_on_the_batch_are_refused(tmp_path: Path) -> None:
    model = two_inputs()
    for value, size in zip(model.proto.graph.input, (1, 4), strict=True):
        value.type.tensor_type.shape.dim[0].dim_value = size
    with pytest.raises(ModelError, match="do not agree on the number of samples"):
        lab(tmp_path, model)


def test_an_input_without_an_axis_for_samples_is_fed_one_at_a_time(tmp_path: Path) -> None:
    model = residual()
    scale = helper.make_tensor_value_info("scale", TensorProto.FLOAT, [])
    model.proto.graph.input.append(scale)
    model.proto.graph.node[-1].output[0] = "unscaled"
    model.proto.graph.node.append(helper.make_node("Mul", ["unscaled", "scale"], ["y"], "mul"))
    samples = lab(tmp_path, model).subject.samples
    assert len(list(samples.batches(8))) == len(samples)
    assert next(samples.batches(8))["scale"].shape == ()
