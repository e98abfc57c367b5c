"""What each layer adds by itself."""

import numpy as np
import pytest
from onnx_models import run
from quantizable_models import CHAIN, mobile, random_samples, spiked_chain, spiked_samples
from suite_quantizers import Prepared, prepared_residual
from suite_sensitivities import scores_of

from seqto.graph.inner import with_outputs
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer, previewed
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.local import LocalSensitivity
from seqto.sensitivity.noise import Noise
from seqto.sensitivity.own_noise import own_noises
from seqto.types import FLOAT32, Candidate

QUANTIZERS = [StaticQuantizer, DynamicQuantizer, WeightOnlyQuantizer]


def noises(prepared: Prepared, precision: str, count: int = 100) -> dict[str, Noise]:
    return own_noises(
        *(prepared.model, prepared.layers, prepared.quantizer, prepared.ranges),
        *(prepared.samples, count, precision),
    )


def alone(prepared: Prepared, layer: str, precision: str, output: str) -> Noise:
    """Return the noise of a tensor in the model in which only this layer is quantized."""
    others = {each.name: FLOAT32 for each in prepared.layers}
    candidate = Candidate.of(others | {layer: precision})
    model = previewed(prepared.quantizer, prepared.model, prepared.ranges, candidate)
    wanted, found = (
        run(with_outputs(each, [output]), prepared.inputs)[-1] for each in (prepared.model, model)
    )
    noise = Noise()
    noise.add(wanted, found)
    return noise


@pytest.mark.parametrize("precision", ["coded_0.35", "int4", "float16", "int8"])
def test_noise_is_that_of_the_layer_alone(precision: str) -> None:
    # Where activations stay in float, the layer alone does to its output just this.
    prepared = prepared_residual(WeightOnlyQuantizer())
    found = noises(prepared, precision)
    for layer, output in {"stem": "sr", "left": "lr", "right": "r", "head": "y"}.items():
        wanted = alone(prepared, layer, precision, output)
        assert found[layer].share == pytest.approx(wanted.share, rel=1e-3), layer
        assert found[layer].mean_square == pytest.approx(wanted.mean_square, rel=1e-3)
    assert found.keys() == {layer.name for layer in prepared.layers}


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_fewer_bits_make_more_noise(quantizer: type) -> None:
    floating = prepare(mobile())
    prepared = Prepared(quantizer(), floating, random_samples(floating))
    by_precision = [noises(prepared, each) for each in ("int4", "int8", "float16")]
    for name in by_precision[0]:
        four, eight, half = (each[name].share for each in by_precision)
        assert 0.3 > four > 2 * eight > 10 * half > 0, name


@pytest.mark.parametrize("hard", CHAIN)
@pytest.mark.parametrize("quantizer", [StaticQuantizer, DynamicQuantizer])
def test_no_layer_inherits_noise(hard: str, quantizer: type) -> None:
    prepared = Prepared(
        quantizer(per_channel=False), prepare(spiked_chain(hard)), spiked_samples(fire=False)
    )
    found = {name: noise.share for name, noise in noises(prepared, "int8").items()}
    assert found.pop(hard) > 100 * max(found.values())


def test_only_so_many_samples_are_run() -> None:
    prepared = prepared_residual(StaticQuantizer())
    few, all_of_them = (noises(prepared, "int8", count)["stem"].count for count in (2, 1000))
    assert few / 2 == all_of_them / len(prepared.samples)


@pytest.mark.parametrize("metric", ["sqnr", "mse", "sqnr_delta"])
def test_costs_of_further_precisions_are_own_noise(metric: str) -> None:
    prepared = prepared_residual(StaticQuantizer())
    precisions = ["int4", "int8", "float16", "float32"]
    scores = scores_of(LocalSensitivity(metric=metric, precisions=precisions), prepared)
    for precision in precisions[:3]:
        own = noises(prepared, precision, 32)
        for score in scores:
            noise = own[score.layer.name]
            wanted = noise.mean_square if metric == "mse" else noise.share
            assert score.costs[precision] == wanted
    assert all(score.costs["float32"] == 0 for score in scores)


def test_ranking_is_that_of_int8_whatever_may_be_chosen() -> None:
    prepared = prepared_residual(StaticQuantizer())
    plain, more = (
        scores_of(LocalSensitivity(precisions=each), prepared)
        for each in (["int8", "float32"], ["int4", "float32"])
    )
    assert [(each.layer, each.score) for each in plain] == [(e.layer, e.score) for e in more]
    assert all(set(each.costs) == {"int8", "float32"} for each in plain)
    assert all(set(each.costs) == {"int4", "int8", "float32"} for each in more)


def test_noise_behind_a_relu_is_what_the_relu_leaves() -> None:
    """In weight-only models the Relu is there, in static ones it is part of the layer."""
    quantizers: list[Quantizer] = [WeightOnlyQuantizer(), StaticQuantizer()]
    for quantizer in quantizers:
        prepared = prepared_residual(quantizer)
        signal = noises(prepared, "int8")["stem"].signal
        (wanted,) = run(with_outputs(prepared.model, ["sr"]), prepared.inputs)[-1:]
        assert signal == pytest.approx(float(np.square(wanted, dtype=np.float64).sum()))
