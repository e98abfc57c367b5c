"""What quantizing one layer alone does to the model's output."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import build, residual, weight
from pydantic import ValidationError
from quantizable_models import CHAIN, mobile, random_samples, spiked_chain, spiked_samples
from suite_quantizers import Prepared, prepared_residual
from suite_sensitivities import SensitivitySuite, scores_of
from transformer_models import vit

from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.errors import DeviceError, SeqtoError
from seqto.graph.prepare import prepare
from seqto.metrics.harm import FLOOR, Divergence
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity import divergence, float_prefixes
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.stability import stability
from seqto.tasks.regression import Regression
from seqto.types import FLOAT32, Candidate, LayerScore, Model, Outputs, Ranges, Samples

QUANTIZERS = [StaticQuantizer, DynamicQuantizer]


class TestDivergenceSensitivity(SensitivitySuite):
    """The conformance suite."""

    @pytest.fixture
    def sensitivity(self) -> DivergenceSensitivity:
        """Return the default."""
        return DivergenceSensitivity(enough=None)


def prepared_of(model: Model, quantizer: Quantizer) -> Prepared:
    """Return a model with random samples."""
    floating = prepare(model)
    return Prepared(quantizer, floating, random_samples(floating))


def costs(scores: tuple[LayerScore, ...], precision: str = "int8") -> dict[str, float]:
    """Return the costs of a precision by layer."""
    return {score.layer.name: score.costs[precision] for score in scores}


def first_outputs(model: Model, samples: Samples, count: int) -> Outputs:
    """Return what the model says of each sample, run from its inputs to its outputs."""
    program, name = OnnxRuntimeDevice().load(model), model.proto.graph.output[0].name
    runs = [program.run(each)[0] for each in islice(samples.batches(1), count)]
    return {name: np.concatenate(runs)}


def naive_costs(prepared: Prepared, count: int = 32, precision: str = "int8") -> dict[str, float]:
    """Return the costs as they are defined: every layer's own model run as a whole."""
    harm = Divergence(first_outputs(prepared.model, prepared.samples, count))
    found = {}
    for name in prepared.names:
        alone = Candidate.of({each: "float32" for each in prepared.names} | {name: precision})
        quantized = prepared.quantizer.quantize(prepared.model, prepared.ranges, alone)
        found[name] = float(
            harm.per_sample(first_outputs(quantized, prepared.samples, count)).mean()
        )
    return found


def chain_of_heads() -> Model:
    """Return two heads behind one layer, of which the second output has another layer between."""
    nodes = [
        helper.make_node("Conv", ["x", "stem_w"], ["s"], "stem"),
        helper.make_node("Relu", ["s"], ["sr"], "relu"),
        helper.make_node("Conv", ["sr", "side_w"], ["side"], "side"),
        helper.make_node("Conv", ["sr", "body_w"], ["b"], "body"),
        helper.make_node("GlobalAveragePool", ["b"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["y"], "flatten"),
    ]
    weights = [weight("stem_w", 4, 3, 1, 1), weight("side_w", 4, 4, 1, 1)]
    weights.append(weight("body_w", 5, 4, 1, 1))
    outputs = {"y": ["N", 5], "side": ["N", 4, 8, 8]}
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, outputs, name="heads")


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize(
    "model",
    [residual(), mobile(), chain_of_heads(), vit(), vit(like_bert=True)],
    ids=["residual", "mobile", "heads", "vit", "like_bert"],
)
def test_costs_are_those_of_whole_models(model: Model, quantizer: type) -> None:
    prepared = prepared_of(model, quantizer())
    found = costs(scores_of(DivergenceSensitivity(enough=None), prepared))
    # The parts of a model may be fused in another way: that is float noise.
    assert found == pytest.approx(naive_costs(prepared), rel=0.02, abs=1e-9)
    assert max(found.values()) > 1e-7


@pytest.mark.parametrize("limit", [0, 12 * 2048, 3 * 12 * 2048])
def test_little_memory_gives_the_same_costs(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepared_of(mobile(), StaticQuantizer())
    wanted = costs(scores_of(DivergenceSensitivity(enough=None), prepared))
    # Activations of a cut are forgotten when others come, and computed again.
    monkeypatch.setattr(float_prefixes, "MEMORY_LIMIT", limit)
    assert costs(scores_of(DivergenceSensitivity(enough=None), prepared)) == pytest.approx(
        wanted, rel=0.02
    )


@pytest.mark.parametrize("precision", ["int4", "int8", "int16", "float16"])
def test_every_precision_can_be_asked_for(precision: str) -> None:
    prepared = prepared_residual(StaticQuantizer())
    scores = scores_of(
        DivergenceSensitivity(precisions=[precision, "float32"], enough=None), prepared
    )
    assert all(set(score.costs) == {"float32", precision} for score in scores)
    wanted = naive_costs(prepared, precision=precision)
    assert costs(scores, precision) == pytest.approx(wanted, rel=0.02, abs=1e-9)


def test_fewer_bits_cost_more_and_int8_ranks() -> None:
    prepared = prepared_residual(StaticQuantizer())
    several = DivergenceSensitivity(precisions=["float16", "int4", "int8"], enough=None)
    scores = scores_of(several, prepared)
    for score in scores:
        assert score.costs["float16"] < score.costs["int8"] < score.costs["int4"]
    only = scores_of(DivergenceSensitivity(enough=None), prepared)
    assert [score.score for score in scores] == [score.score for score in only]


def test_a_precision_that_the_quantizer_does_not_have_is_named() -> None:
    with pytest.raises(SeqtoError, match="int3"):
        scores_of(DivergenceSensitivity(precisions=["int3"]), prepared_residual(StaticQuantizer()))


@pytest.mark.parametrize("hard", CHAIN)
def test_eight_samples_rank_the_hard_layer_first(hard: str) -> None:
    # Its weights are hard wherever they share one scale; its output is where the samples fire.
    prepared = Prepared(
        DynamicQuantizer(), prepare(spiked_chain(hard)), spiked_samples(fire=False, count=8)
    )
    scores = scores_of(DivergenceSensitivity(samples=8), prepared, Regression())
    assert scores[0].layer.name == hard
    assert scores[0].score == 1.0
    assert scores[0].details["divergence_per_byte"] == 1.0
    assert scores[1].score < 0.5


def test_harm_is_what_the_task_says() -> None:
    prepared = Prepared(
        StaticQuantizer(), prepare(spiked_chain()), spiked_samples(fire=False, count=8)
    )
    task = Regression()
    scores = scores_of(DivergenceSensitivity(enough=None), prepared, task)
    harm = task.harm(first_outputs(prepared.model, prepared.samples, 8))
    for score in scores:
        assert "kl" not in score.details
        others = [name for name in prepared.names if name != score.layer.name]
        outputs = first_outputs(prepared.excluding(*others), prepared.samples, 8)
        wanted = pytest.approx(harm.per_sample(outputs).mean(), rel=1e-3)
        assert score.details[harm.name] == score.costs["int8"] == wanted


def with_softmax(model: Model) -> Model:
    """Return a classifier that ends in a Softmax."""
    proto = model.copy_proto()
    proto.graph.node.append(helper.make_node("Softmax", ["y"], ["probability"], "softmax", axis=-1))
    proto.graph.output[0].name = "probability"
    return Model(model.name, proto)


def test_distributions_are_taken_as_they_are() -> None:
    logits, distribution = (
        costs(scores_of(DivergenceSensitivity(enough=None), prepared_of(model, DynamicQuantizer())))
        for model in (mobile(), with_softmax(mobile()))
    )
    assert distribution == pytest.approx(logits, rel=1e-3)


def test_only_so_many_samples_are_looked_at() -> None:
    prepared = prepared_residual(StaticQuantizer())
    few = scores_of(DivergenceSensitivity(samples=4), prepared)
    inputs = {name: array.copy() for name, array in prepared.samples.inputs.items()}
    for array in inputs.values():
        array[4:] = np.nan
    prepared.samples = replace(prepared.samples, inputs=inputs)
    assert scores_of(DivergenceSensitivity(samples=4), prepared) == few


def test_half_scores_have_the_scale_of_the_score() -> None:
    for score in scores_of(
        DivergenceSensitivity(enough=None), prepared_residual(StaticQuantizer())
    ):
        mean = (score.details["first_half"] + score.details["second_half"]) / 2
        assert mean == pytest.approx(score.score)


def test_a_layer_behind_another_output_does_no_harm() -> None:
    prepared = prepared_of(chain_of_heads(), DynamicQuantizer())
    found = costs(scores_of(DivergenceSensitivity(enough=None), prepared))
    assert found["side"] == pytest.approx(0, abs=1e-12)
    assert found["body"] > 1e-7


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"precisions": []}, {"sample": 1}])
def test_wrong_settings_are_named(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        DivergenceSensitivity(**wrong)


def test_stability_is_high_where_the_halves_agree() -> None:
    scores = scores_of(DivergenceSensitivity(enough=None), prepared_of(mobile(), StaticQuantizer()))
    assert (stability(scores) or 0) > 0.5


def test_only_layers_that_do_much_of_the_harm_are_measured_on_all_samples() -> None:
    prepared = prepared_of(mobile(), StaticQuantizer())
    whole, few, quick = (
        costs(scores_of(DivergenceSensitivity(samples=count, enough=enough), prepared))
        for count, enough in ((32, None), (2, None), (32, 2))
    )
    much = {name for name, cost in few.items() if cost > 0.03 * sum(few.values())}
    assert 0 < len(much) < len(few), "or this model is no test"
    for name, cost in quick.items():
        assert cost == pytest.approx(whole[name] if name in much else few[name])
        assert whole[name] != pytest.approx(few[name])


class Counting(WeightOnlyQuantizer):
    """Notes the precisions in which layers are shown."""

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        self.shown.update(each for _, each in candidate.precisions if each != FLOAT32)
        return super().preview(model, ranges, candidate)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shown: Counter[str] = Counter()


CODED = DivergenceSensitivity(precisions=["coded"], enough=None)


def test_a_step_that_ruins_outputs_does_not_tell_of_much_finer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quantizer = Counting()
    prepared = prepared_of(mobile(), quantizer)
    quantizer.shown.clear()
    told = costs(scores_of(CODED, prepared), "coded_0.02")
    assert quantizer.shown == {"coded_0.35": len(prepared.names)}
    # As if every harm were too much: what is measured is then what counts, down to the finest.
    monkeypatch.setattr(divergence, "_RUINED", 1e-9)
    quantizer.shown.clear()
    found = costs(scores_of(CODED, prepared), "coded_0.02")
    assert quantizer.shown["coded_0.02"] == len(prepared.names)
    assert found == pytest.approx(naive_costs(prepared, precision="coded_0.02"), rel=0.02, abs=1e-9)
    assert found != pytest.approx(told, rel=0.02)


def test_samples_that_are_alike_do_not_make_every_layer_ruined() -> None:
    quantizer = Counting()
    prepared = prepared_of(mobile(), quantizer)
    quantizer.shown.clear()
    samples = prepared.samples
    same = {
        name: np.repeat(each[:1], len(samples), axis=0) for name, each in samples.inputs.items()
    }
    prepared.samples = replace(samples, inputs=same)
    scores_of(CODED, prepared)
    assert quantizer.shown == {"coded_0.35": len(prepared.names)}


class Refusing(OnnxRuntimeDevice):
    """A CPU that refuses cut parts of models, and models in which a layer is quantized."""

    layer = ""

    def load_here(self, model: Model) -> OnnxRuntimeProgram:
        graph = model.proto.graph
        inputs, outputs = graph.input[0].name, graph.output[0].name
        quantized = any(each.name == f"{self.layer}_w_quantized" for each in graph.initializer)
        if (inputs, outputs) != ("x", "y") or quantized:
            raise DeviceError("refused")
        return super().load_here(model)


def test_where_parts_are_refused_whole_models_give_the_same_costs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = prepared_of(chain_of_heads(), StaticQuantizer())
    monkeypatch.setattr(float_prefixes, "OnnxRuntimeDevice", Refusing)
    found = costs(scores_of(DivergenceSensitivity(enough=None), prepared))
    assert found == pytest.approx(naive_costs(prepared), rel=0.02, abs=1e-9)
    assert len([each for each in caplog.messages if "where a part fails" in each]) == 1


def test_a_layer_that_cannot_be_loaded_is_ruined_and_the_others_are_ranked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = prepared_of(chain_of_heads(), StaticQuantizer())
    monkeypatch.setattr(Refusing, "layer", "stem")
    monkeypatch.setattr(float_prefixes, "OnnxRuntimeDevice", Refusing)
    found = costs(scores_of(DivergenceSensitivity(), prepared))
    assert found["stem"] == pytest.approx(-np.log(FLOOR))
    assert found["body"] < 1
    assert len([each for each in caplog.messages if "Layer stem counts as ruined" in each]) == 1
