"""What the quantizers share."""

import pytest
from onnx_models import residual
from quantizable_models import mobile, random_samples, weightless
from suite_quantizers import Prepared

from seqto.errors import ConfigError, LayerError, ModelError
from seqto.graph.links import Links
from seqto.graph.prepare import prepare
from seqto.graph.quantized import quantized_nodes
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.ort import (
    find_layers,
    nodes_to_exclude,
    tensors_around,
    with_shapes,
)
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Candidate, Model

LAYERS = ["stem", "left", "right", "head"]
EACH = pytest.mark.parametrize(
    "quantizer", [StaticQuantizer, DynamicQuantizer, WeightOnlyQuantizer]
)


def links_of(model: Model) -> Links:
    """Return the links of the prepared model."""
    return Links(prepare(model).proto.graph)


def test_layers_are_of_the_operations_asked_for() -> None:
    layers = find_layers(prepare(residual()), ["Gemm"], [])
    assert [layer.name for layer in layers] == ["head"]


def test_layers_never_to_quantize_are_left_out() -> None:
    layers = find_layers(prepare(residual()), ["Conv", "Gemm"], ["right", "stem"])
    assert [layer.name for layer in layers] == ["left", "head"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["first"], ["left", "right", "head"]),
        (["last"], ["stem", "left", "right"]),
        (["first", "last", "stem"], ["left", "right"]),
        (["op:Gemm"], ["stem", "left", "right"]),
        (["op:Conv"], ["head"]),
        (["*t"], ["stem", "head"]),
        (["?e[fa]*"], ["stem", "right"]),
        (["[!s]*"], ["stem"]),
        (["r*", "op:Gemm", "first"], ["left"]),
    ],
)
def test_layers_may_be_excluded_by_pattern_operation_and_place(
    words: list[str], left: list[str]
) -> None:
    layers = find_layers(prepare(residual()), ["Conv", "Gemm"], words)
    assert [layer.name for layer in layers] == left


@pytest.mark.parametrize("name", ["l[ae]*", "first", "last", "op:Conv", "*"])
def test_a_layer_of_this_very_name_goes_before_what_the_word_means(name: str) -> None:
    model = prepare(residual())
    model.proto.graph.node[2].name = name
    layers = find_layers(model, ["Conv", "Gemm"], [name])
    assert [layer.name for layer in layers] == ["stem", "right", "head"]


@EACH
def test_excluded_by_words_stays_float_in_every_candidate(quantizer: type) -> None:
    floating, samples = prepare(residual()), random_samples(prepare(residual()))
    by_word = Prepared(quantizer(exclude=["le*", "last"]), floating, samples)
    by_name = Prepared(quantizer(exclude=["left", "head"]), floating, samples)
    assert by_word.names == by_name.names == ["stem", "right"]
    for excluded in ([], ["stem"], ["stem", "right"]):
        quantized = by_word.excluding(*excluded)
        assert quantized.to_bytes() == by_name.excluding(*excluded).to_bytes()


@EACH
def test_excluded_operation_is_the_one_of_the_users_model(quantizer: type) -> None:
    floating = prepare(residual())
    prepared = Prepared(quantizer(exclude=["op:Gemm"]), floating, random_samples(floating))
    assert prepared.names == ["stem", "left", "right"]
    assert "head" not in quantized_nodes(prepared.excluding())


@EACH
@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("STEM*", "'STEM*'"),
        ("rihgt*", "'rihgt*' (did you mean 'right'?)"),
        ("op:Cnov", "'op:Cnov' (did you mean 'op:Conv'"),
    ],
)
def test_words_that_match_nothing_are_an_error(quantizer: type, word: str, hint: str) -> None:
    with pytest.raises(LayerError) as caught:
        quantizer(exclude=["first", word]).prepare(prepare(residual()))
    message = str(caught.value)
    assert hint in message and "'first'" not in message
    assert "4 quantizable layers, from 'stem' to 'head'" in message


@EACH
@pytest.mark.parametrize(
    ("name", "hint"), [("rihgt", "'rihgt' (did you mean 'right'?)"), ("fc", "'fc'.")]
)
def test_unknown_layer_gives_the_nearest_names(quantizer: type, name: str, hint: str) -> None:
    with pytest.raises(LayerError) as caught:
        quantizer(exclude=["left", name]).prepare(prepare(residual()))
    message = str(caught.value)
    assert message.startswith("quantization.exclude names layers that the model does not have")
    assert hint in message
    assert "4 quantizable layers, from 'stem' to 'head'" in message


def test_nodes_without_weights_are_no_layers() -> None:
    with pytest.raises(LayerError, match="'add'"):
        find_layers(prepare(residual()), ["Conv", "Add"], ["add"])


@EACH
def test_excluding_all_layers_for_ever_is_refused(quantizer: type) -> None:
    with pytest.raises(ModelError, match="quantization.exclude names all 4"):
        quantizer(exclude=LAYERS).prepare(prepare(residual()))


def test_model_with_nothing_to_quantize_says_what_it_has() -> None:
    with pytest.raises(ModelError, match="one of Conv, Gemm .*it has MatMul, Relu"):
        find_layers(prepare(weightless()), ["Gemm", "Conv"], [])


@EACH
def test_misspelt_operation_gives_the_nearest(quantizer: type) -> None:
    with pytest.raises(ConfigError, match="op_types names 'Covn'.*did you mean 'Conv'"):
        quantizer(op_types=["Gemm", "Covn"])


def test_nothing_is_left_alone_in_full_quantization() -> None:
    links = links_of(residual())
    assert nodes_to_exclude(links, Candidate.excluding(LAYERS, []), []) == []


def test_operations_between_excluded_layers_are_left_alone_too() -> None:
    candidate = Candidate.excluding(LAYERS, ["stem", "left"])
    # left_relu feeds the quantized `right`, stem_relu the Add behind it.
    assert nodes_to_exclude(links_of(residual()), candidate, []) == ["left", "stem"]
    candidate = Candidate.excluding(LAYERS, ["stem", "left", "right"])
    assert "left_relu" in nodes_to_exclude(links_of(residual()), candidate, [])


def test_layers_never_to_quantize_count_as_excluded() -> None:
    links = links_of(residual())
    chosen = Candidate.excluding(LAYERS[:-1], LAYERS[:-1])
    everything = Candidate.excluding(LAYERS, LAYERS)
    assert nodes_to_exclude(links, chosen, ["head"]) == nodes_to_exclude(links, everything, [])


def test_shapes_are_marked_and_the_model_stays_as_it_is() -> None:
    model = prepare(residual())
    before = model.to_bytes()
    marked = with_shapes(model)
    assert {each.key for each in marked.proto.metadata_props} >= {"onnx.infer"}
    assert model.to_bytes() == before


def test_tensors_around_a_layer_end_at_operations_of_several_inputs() -> None:
    links = links_of(residual())
    assert tensors_around(links, []) == set()
    assert tensors_around(links, ["stem"]) == {"x", "s", "sr"}
    assert tensors_around(links, ["left"]) == {"s", "sr", "l", "lr"}
    assert tensors_around(links, ["right"]) == {"l", "lr", "r"}
    assert tensors_around(links, ["head"]) == {"sum", "sumr", "p", "f", "y"}


def test_tensors_around_know_constants_from_activations() -> None:
    links = links_of(mobile(blocks=1))
    # Clip has its limits as inputs too.
    clipped = {"block0_expand_y", "block0_expand_c", "block0_depthwise_y", "block0_depthwise_c"}
    assert tensors_around(links, ["block0_depthwise"]) == clipped
