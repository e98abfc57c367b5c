"""QuantuneV2's layer analysis."""

from typing import Any

import numpy as np
import pytest
from onnx_models import run
from pydantic import ValidationError
from quantizable_models import CHAIN, spiked_chain, spiked_samples
from suite_quantizers import Prepared, prepared_residual
from suite_sensitivities import SensitivitySuite, scores_of

from seqto.graph.inner import with_outputs
from seqto.graph.prepare import prepare
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.local import LocalSensitivity
from seqto.types import LayerScore


class TestLocalSqnr(SensitivitySuite):
    """The conformance suite."""

    @pytest.fixture
    def sensitivity(self) -> LocalSensitivity:
        """Return the default."""
        return LocalSensitivity()


class TestLocalMse(SensitivitySuite):
    """The conformance suite."""

    @pytest.fixture
    def sensitivity(self) -> LocalSensitivity:
        """Return the one that ranks by squared error."""
        return LocalSensitivity(metric="mse")


class TestLocalSqnrDelta(SensitivitySuite):
    """The conformance suite."""

    @pytest.fixture
    def sensitivity(self) -> LocalSensitivity:
        """Return the one that ranks by what a layer adds."""
        return LocalSensitivity(metric="sqnr_delta")


def by_layer(scores: tuple[LayerScore, ...], detail: str) -> dict[str, float]:
    """Return one detail of the scores by layer."""
    return {score.layer.name: score.details[detail] for score in scores}


def tensors(prepared: Prepared, names: list[str], *, quantized: bool) -> list[np.ndarray]:
    """Return inner tensors of the float model, or of the fully quantized one."""
    model = prepared.excluding() if quantized else prepared.model
    inputs = prepared.inputs
    return run(with_outputs(model, names), inputs)[-len(names) :]


def decibels(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the signal-to-noise ratio."""
    noise = np.square(wanted - found, dtype=np.float64).sum()
    return float(10 * np.log10(np.square(wanted, dtype=np.float64).sum() / noise))


def test_metrics_are_what_they_say() -> None:
    # `left` is between the Relu of the stem and its own, which ORT's quantizer drops.
    prepared = prepared_residual(StaticQuantizer())
    given, made = tensors(prepared, ["sr", "lr"], quantized=False)
    names = ["sr_DequantizeLinear_Output", "lr_DequantizeLinear_Output"]
    noisy_given, noisy_made = tensors(prepared, names, quantized=True)
    scores = scores_of(LocalSensitivity(), prepared)
    ratio = decibels(made, noisy_made)
    assert by_layer(scores, "sqnr_db")["left"] == pytest.approx(ratio, abs=1e-4)
    delta = decibels(given, noisy_given) - ratio
    assert by_layer(scores, "sqnr_delta_db")["left"] == pytest.approx(delta, abs=1e-4)
    error = np.square(made - noisy_made).mean()
    assert by_layer(scores, "mse")["left"] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("metric", ["sqnr", "mse", "sqnr_delta"])
def test_the_metric_ranks(metric: str) -> None:
    scores = scores_of(
        LocalSensitivity(metric=metric, per_byte=False), prepared_residual(StaticQuantizer())
    )
    for score in scores:
        assert score.score == score.details[f"{metric}_err"]
    for each in ("sqnr_err", "mse_err", "sqnr_delta_err"):
        assert max(by_layer(scores, each).values()) == 1.0
        assert min(by_layer(scores, each).values()) >= 0.0


@pytest.mark.parametrize("quantizer", [DynamicQuantizer, StaticQuantizer])
@pytest.mark.parametrize("hard", CHAIN)
def test_the_layer_that_adds_noise_comes_first(hard: str, quantizer: type) -> None:
    prepared = Prepared(
        quantizer(per_channel=False), prepare(spiked_chain(hard)), spiked_samples(fire=False)
    )
    scores = scores_of(LocalSensitivity(metric="sqnr_delta"), prepared)
    assert scores[0].layer.name == hard
    # Those behind it inherit the noise: it is in their ratio, but not in what they add.
    behind = CHAIN[CHAIN.index(hard) + 1 :]
    for name in behind:
        assert by_layer(scores, "sqnr_db")[name] < 20
        assert by_layer(scores, "sqnr_delta_db")[name] < 10


def test_weights_alone_can_be_looked_at() -> None:
    scores = scores_of(LocalSensitivity(), prepared_residual(WeightOnlyQuantizer()))
    assert len(scores) == 4
    assert all(30 < ratio < 60 for ratio in by_layer(scores, "sqnr_db").values())


@pytest.mark.parametrize("wrong", [{"metric": "psnr"}, {"samples": 0}, {"sample": 1}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        LocalSensitivity(**wrong)
