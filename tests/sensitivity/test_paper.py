"""The paper's layer analysis."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, qdq_loss_debug
from pydantic import ValidationError
from quantizable_models import CHAIN, mobile, node, random_samples, spiked_chain, spiked_samples
from suite_quantizers import Prepared, prepared_residual
from suite_sensitivities import SensitivitySuite, scores_of

from seqto.errors import ConfigError
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.sensitivity.paper import PaperSensitivity
from seqto.types import Arrays, LayerScore, Samples


class TestPublishedOrder(SensitivitySuite):
    """The conformance suite, for the published tool's order."""

    @pytest.fixture
    def sensitivity(self) -> PaperSensitivity:
        """Return what ranks as the tool does."""
        return PaperSensitivity(published=True)


class TestPaperSensitivity(SensitivitySuite):
    """The conformance suite."""

    @pytest.fixture
    def sensitivity(self) -> PaperSensitivity:
        """Return the default."""
        return PaperSensitivity()


def spiked(hard: str | None, quantizer: Quantizer, *, fire: bool = True) -> Prepared:
    """Return a chain of layers whose `hard` one is hard to quantize.

    Its output is where the samples fire; its weights are wherever they share one scale.
    """
    return Prepared(quantizer, prepare(spiked_chain(hard)), spiked_samples(fire=fire))


def detail(scores: tuple[LayerScore, ...], name: str) -> dict[str, float]:
    """Return one detail of the scores by layer."""
    return {score.layer.name: score.details[name] for score in scores}


@pytest.mark.parametrize("hard", CHAIN)
@pytest.mark.parametrize("quantizer", [StaticQuantizer, DynamicQuantizer])
def test_the_layer_that_is_hard_to_quantize_comes_first(hard: str, quantizer: type) -> None:
    # Wherever it is: high decibels are a small error, so the sign must be turned.
    scores = scores_of(
        PaperSensitivity(qdq_weight=1, xmodel_weight=0), spiked(hard, quantizer(per_channel=True))
    )
    assert scores[0].layer.name == hard
    assert scores[0].score == 1.0
    ratios = detail(scores, "qdq_sqnr_db")
    assert ratios[hard] < min(ratios[name] for name in CHAIN if name != hard) - 10


def test_by_default_too_where_nothing_behind_it_inherits_the_error() -> None:
    scores = scores_of(PaperSensitivity(), spiked("third", StaticQuantizer()))
    assert scores[0].layer.name == "third"
    assert scores[0].score == pytest.approx(1.0)
    # Its ratio is that of its neighbours as long as it is not hard.
    plain = scores_of(PaperSensitivity(), spiked(None, StaticQuantizer()))
    ratio, plain_ratio = (detail(each, "qdq_sqnr_db")["third"] for each in (scores, plain))
    assert plain_ratio > ratio + 10


@pytest.mark.parametrize("quantizer", [StaticQuantizer, DynamicQuantizer])
def test_a_huge_weight_hurts_where_all_share_its_scale(quantizer: type) -> None:
    fine, coarse = (
        scores_of(
            PaperSensitivity(), spiked("third", quantizer(per_channel=per_channel), fire=False)
        )
        for per_channel in (True, False)
    )
    assert (
        detail(fine, "xmodel_sqnr_db")["third"] > 30 > 5 > detail(coarse, "xmodel_sqnr_db")["third"]
    )
    assert coarse[0].layer.name == "third"


def test_layers_never_to_quantize_are_not_quantized_in_the_analysis() -> None:
    # Were `first` quantized, the layers behind it would inherit its error.
    whole, without = (
        detail(
            scores_of(PaperSensitivity(), spiked("first", quantizer, fire=False)), "xmodel_sqnr_db"
        )
        for quantizer in (DynamicQuantizer(), DynamicQuantizer(exclude=["first"]))
    )
    assert set(without) == {"second", "third"}
    assert without["second"] > whole["second"] + 20


class Reader(CalibrationDataReader):
    """Samples, as ORT's qdq_loss_debug takes them."""

    def __init__(self, samples: Samples) -> None:
        self._batches = samples.batches(1)

    def get_next(self) -> Arrays | None:
        """Return the next sample."""
        return next(self._batches, None)


def by_onnxruntime(prepared: Prepared, folder: Path) -> dict[str, dict[str, float]]:
    """Return what ORT's qdq_loss_debug computes, by activation."""
    activations = []
    for name, model in (("float", prepared.model), ("quantized", prepared.excluding())):
        path, augmented = folder / f"{name}.onnx", folder / f"{name}-augmented.onnx"
        onnx.save(model.proto, path)
        qdq_loss_debug.modify_model_output_intermediate_tensors(path, augmented)
        activations.append(
            qdq_loss_debug.collect_activations(str(augmented), Reader(prepared.samples))
        )
    floating, quantized = activations
    matching = qdq_loss_debug.create_activation_matching(quantized, floating)
    return qdq_loss_debug.compute_activation_error(matching)


@pytest.mark.parametrize("per_channel", [True, False])
def test_ratios_are_those_of_onnxruntimes_qdq_loss_debug(per_channel: bool, tmp_path: Path) -> None:
    floating = prepare(mobile())
    prepared = Prepared(
        StaticQuantizer(per_channel=per_channel), floating, random_samples(floating)
    )
    theirs = by_onnxruntime(prepared, tmp_path)
    quantized = prepared.excluding()
    compared = 0
    for score in scores_of(PaperSensitivity(published=True), prepared):
        output = node(quantized, score.layer.name).output[0].removesuffix("_QuantizeLinear_Input")
        if output in theirs:
            ours = score.details["qdq_sqnr_db"], score.details["xmodel_sqnr_db"]
            wanted = theirs[output]["qdq_err"], theirs[output]["xmodel_err"]
            assert ours == pytest.approx(wanted, abs=1e-3)
            compared += 1
    assert compared == len(prepared.layers)


def test_what_a_relu_cuts_off_is_no_rounding() -> None:
    floating = prepare(mobile())
    prepared = Prepared(StaticQuantizer(), floating, random_samples(floating))
    ours, published = (
        detail(scores_of(PaperSensitivity(published=each), prepared), "qdq_sqnr_db")
        for each in (False, True)
    )
    followed = {name for name in ours if name.endswith(("expand", "depthwise"))}
    assert len(followed) == 6
    for name in ours:
        if name in followed:
            # 8 bits of rounding, where the tool sees only that a Clip follows.
            assert 30 < ours[name] < 60 and published[name] < 10
        else:
            assert ours[name] == published[name]


def test_the_published_order_is_that_of_its_ratios_the_highest_first() -> None:
    prepared = prepared_residual(StaticQuantizer())
    published = scores_of(PaperSensitivity(published=True, qdq_weight=0), prepared)
    ratios = [score.details["xmodel_sqnr_db"] for score in published]
    assert ratios == sorted(ratios, reverse=True)
    ours = scores_of(PaperSensitivity(qdq_weight=0), prepared)
    assert [each.layer for each in ours] == [each.layer for each in published][::-1]
    # What it costs to quantize a layer is another matter than who is first.
    assert {each.layer: each.costs for each in ours} == {
        each.layer: each.costs for each in published
    }


def test_each_error_goes_from_0_to_1_against_its_ratio() -> None:
    scores = scores_of(PaperSensitivity(), prepared_residual(StaticQuantizer()))
    for kind in ("qdq", "xmodel"):
        errors, ratios = detail(scores, f"{kind}_err"), detail(scores, f"{kind}_sqnr_db")
        assert (min(errors.values()), max(errors.values())) == (0.0, 1.0)
        assert sorted(errors, key=lambda name: errors[name]) == sorted(
            ratios, key=lambda name: -ratios[name]
        )


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ({"qdq_weight": 1, "xmodel_weight": 0}, lambda qdq, xmodel: qdq),
        ({"qdq_weight": 0, "xmodel_weight": 1}, lambda qdq, xmodel: xmodel),
        ({}, lambda qdq, xmodel: (qdq + xmodel) / 2),
        ({"qdq_weight": 3, "xmodel_weight": 1}, lambda qdq, xmodel: (3 * qdq + xmodel) / 4),
    ],
)
def test_weights_choose_between_the_errors(weights: dict[str, float], wanted: Any) -> None:
    scores = scores_of(PaperSensitivity(**weights), prepared_residual(StaticQuantizer()))
    for score in scores:
        error = wanted(score.details["qdq_err"], score.details["xmodel_err"])
        assert score.score == pytest.approx(error)


def test_only_so_many_samples_are_looked_at() -> None:
    prepared = prepared_residual(StaticQuantizer())
    few = scores_of(PaperSensitivity(samples=3), prepared)
    prepared.samples = Samples(
        {name: array[:3] for name, array in prepared.samples.inputs.items()}, ("a", "b", "c")
    )
    assert scores_of(PaperSensitivity(), prepared) == few
    assert scores_of(PaperSensitivity(samples=1), prepared) != few


def test_layers_without_a_difference_are_not_hurt() -> None:
    # With a single layer, the highest ratio is the lowest as well.
    (score,) = scores_of(PaperSensitivity(), prepared_residual(StaticQuantizer(op_types=["Gemm"])))
    assert score.score == 0.0
    assert np.isfinite(list(score.details.values())).all()


def test_no_weight_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="qdq_weight and sensitivity.xmodel_weight are both 0"):
        PaperSensitivity(qdq_weight=0, xmodel_weight=0)


@pytest.mark.parametrize("wrong", [{"qdq_weight": -1}, {"samples": 0}, {"weights": 1}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        PaperSensitivity(**wrong)
