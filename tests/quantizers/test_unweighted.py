"""Operations without weights that static quantization leaves in float."""

import numpy as np
import pytest
from onnx_models import op_types, residual, run
from pydantic import ValidationError
from quantizable_models import mobile, random_samples
from sequence_models import detector, masked_attention, texts
from suite_quantizers import Prepared
from transformer_models import vit

from seqto.graph.prepare import prepare
from seqto.graph.regions import better_in_float
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model

CHOICES = ("auto", "int8")


def noise(model: Model, unweighted: str, channels: slice = slice(None)) -> float:
    """Return the noise of full static quantization, as a share of the signal."""
    floating = prepare(model)
    quantizer = StaticQuantizer(unweighted=unweighted)
    prepared = Prepared(quantizer, floating, texts(floating, count=12))
    wanted = run(floating, prepared.inputs)[0][:, channels]
    found = run(prepared.excluding(), prepared.inputs, optimized=True)[0][:, channels]
    return float(np.square(found - wanted).sum() / np.square(wanted).sum())


@pytest.mark.parametrize("hidden", [-3.4e38, -10000.0])
def test_a_mask_does_not_spoil_the_scores_of_other_words(hidden: float) -> None:
    auto, integer = (noise(masked_attention(hidden), each) for each in CHOICES)
    assert auto < 0.01
    assert integer > 10 * auto


def test_scores_survive_beside_boxes_in_pixels() -> None:
    scores = slice(4, 8)
    auto, integer = (noise(detector(), each, scores) for each in CHOICES)
    assert auto < 0.01
    # In steps of several pixels, all scores below 1 are 0.
    assert integer > 0.5


def test_a_vision_transformer_has_less_noise() -> None:
    auto, integer = (noise(vit(batch="N"), each) for each in CHOICES)
    assert auto < integer


def in_float(model: Model) -> set[str]:
    floating, layers = StaticQuantizer().prepare(prepare(model))
    return better_in_float(floating.proto.graph, [layer.name for layer in layers])


def test_attention_and_normalization_and_what_is_between_them_and_layers_stay_float() -> None:
    attention = {"turn", "products", "scaled", "masked", "softmax", "sums", "mask", "for_all"}
    norm = {"residual", "mean", "centred", "squares", "variance", "positive", "deviation", "even"}
    assert in_float(masked_attention()) == attention | norm | {"as_float"}


def test_what_follows_the_last_layers_stays_float() -> None:
    # The multiplication became a part of its convolution.
    assert in_float(detector()) == {"sigmoid", "together"}


@pytest.mark.parametrize("model", [residual, mobile])
def test_a_convolutional_network_is_quantized_as_before(model: type) -> None:
    assert in_float(model()) == set()
    floating = prepare(model())
    sizes = [
        Prepared(StaticQuantizer(unweighted=each), floating, random_samples(floating))
        .excluding()
        .to_bytes()
        for each in CHOICES
    ]
    assert sizes[0] == sizes[1]


def test_who_names_the_operations_gets_them() -> None:
    floating = prepare(masked_attention())
    quantizer = StaticQuantizer(op_types=["MatMul", "Softmax"])
    named = Prepared(quantizer, floating, texts(floating)).excluding()
    plain = Prepared(StaticQuantizer(), floating, texts(floating)).excluding()
    assert op_types(named).count("QuantizeLinear") > op_types(plain).count("QuantizeLinear")


def test_another_word_is_refused() -> None:
    with pytest.raises(ValidationError, match="unweighted"):
        StaticQuantizer(unweighted="float")
