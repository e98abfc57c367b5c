"""Which operations follow the precision of the layers around them."""

import itertools
import random
import time
from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx
import onnx_models
import pytest
import quantizable_models
import zoo_models
from onnx import helper
from onnx_models import build, residual, weight
from quantizable_models import weightless

from seqto.graph.layers import weight_layers
from seqto.graph.links import Links
from seqto.graph.prepare import name_nodes, prepare
from seqto.graph.regions import left_in_float
from seqto.quantizers.ort import WEIGHT_OPS
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model

LAYERS = ("stem", "left", "right", "head")
MODELS = [
    onnx_models.conv_bn_relu,
    onnx_models.residual,
    onnx_models.old_model,
    onnx_models.gemm_model,
    onnx_models.matmul_add,
    onnx_models.unnamed,
    quantizable_models.spiked_chain,
    quantizable_models.mobile,
    quantizable_models.wide,
    quantizable_models.shared_weight,
    quantizable_models.attention,
    quantizable_models.weightless,
    quantizable_models.two_outputs,
    zoo_models.mobilenetv2,
    zoo_models.shufflenetv2,
    zoo_models.efficientnet_lite4,
    zoo_models.resnet50,
]


class CountingLinks(Links):
    """Counts the steps from a node to its neighbours."""

    steps = 0

    def before(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        self.steps += 1
        return super().before(node)

    def after(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        self.steps += 1
        return super().after(node)


def nearest_layers(graph: onnx.GraphProto, layers: Collection[str]) -> dict[str, set[str]]:
    """Return the nearest layers before and after each other node, looked for from each anew."""
    before: dict[str, list[str]] = {node.name: [] for node in graph.node}
    after: dict[str, list[str]] = {node.name: [] for node in graph.node}
    for one, other in itertools.permutations(graph.node, 2):
        if set(one.output) & set(other.input) - {""}:
            after[one.name].append(other.name)
            before[other.name].append(one.name)

    def nearest(name: str, neighbours: Mapping[str, list[str]]) -> set[str]:
        found, seen, pending = set(), set(), list(neighbours[name])
        while pending:
            each = pending.pop()
            if each in layers:
                found.add(each)
            elif each not in seen:
                seen.add(each)
                pending.extend(neighbours[each])
        return found

    return {
        node.name: nearest(node.name, before) | nearest(node.name, after)
        for node in graph.node
        if node.name not in layers
    }


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_same_is_left_as_when_each_node_looks_for_its_nearest_layers(
    make: Callable[[], Model],
) -> None:
    model = make()
    name_nodes(model.proto.graph)
    layers = [layer.name for layer in weight_layers(model, WEIGHT_OPS)]
    links, draw = Links(model.proto.graph), random.Random(0)
    nearest = nearest_layers(model.proto.graph, layers)
    for share in np.linspace(0, 1, 20):
        excluded = {name for name in layers if draw.random() < share}
        expected = [name for name, around in nearest.items() if around <= excluded]
        assert left_in_float(links, layers, excluded) == expected


@pytest.mark.parametrize(
    ("quantized", "around"),
    [
        ("stem", ["stem_relu", "add", "add_relu", "pool", "flatten"]),
        ("left", ["stem_relu", "left_relu"]),
        ("right", ["left_relu", "add", "add_relu", "pool", "flatten"]),
        # Beyond the skip connection.
        ("head", ["stem_relu", "add", "add_relu", "pool", "flatten"]),
    ],
)
def test_a_quantized_layer_is_near_to_all_up_to_the_next_layers(
    quantized: str, around: list[str]
) -> None:
    links = Links(residual().proto.graph)
    left = left_in_float(links, LAYERS, set(LAYERS) - {quantized})
    others = [node.name for node in links.nodes if node.name not in LAYERS]
    assert left == [name for name in others if name not in around]


def test_layers_that_are_not_asked_about_are_looked_through() -> None:
    links = Links(residual().proto.graph)
    assert left_in_float(links, ["stem", "head"], ["head"]) == []
    assert left_in_float(links, ["stem", "head"], ["stem", "head"])[:2] == ["stem_relu", "left"]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ([], []),
        (["stem"], []),
        (["left", "right"], ["left_relu"]),
        (["stem", "left", "head"], ["stem_relu"]),
        (["right", "stem", "head"], ["add", "add_relu", "pool", "flatten"]),
        (LAYERS, ["stem_relu", "left_relu", "add", "add_relu", "pool", "flatten"]),
    ],
)
def test_only_what_has_no_quantized_layer_around_stays_float(
    excluded: list[str], left: list[str]
) -> None:
    assert left_in_float(Links(residual().proto.graph), LAYERS, excluded) == left


def test_operations_with_no_layer_anywhere_stay_float() -> None:
    assert left_in_float(Links(weightless().proto.graph), [], []) == ["relu", "product"]


def test_many_ways_around_are_each_walked_once() -> None:
    # Thirty diamonds in a row have a billion ways through them.
    nodes = [helper.make_node("Conv", ["x", "w"], ["d0"], "first")]
    for index in range(30):
        given, sides = f"d{index}", [f"d{index}_left", f"d{index}_right"]
        nodes += [helper.make_node("Relu", [given], [side], side) for side in sides]
        nodes.append(helper.make_node("Add", sides, [f"d{index + 1}"], f"add{index}"))
    nodes.append(helper.make_node("Conv", ["d30", "w"], ["y"], "last"))
    shape = ["N", 4, 8, 8]
    model = build(nodes, [weight("w", 4, 4, 1, 1)], {"x": shape}, {"y": shape})
    links = CountingLinks(model.proto.graph)
    assert left_in_float(links, ["first", "last"], ["first"]) == []
    assert links.steps <= 2 * len(links.nodes)


def behind_relus(count: int) -> Model:
    """Return so many Relus in a row and three layers behind them."""
    nodes = [
        helper.make_node("Relu", [f"t{at}"], [f"t{at + 1}"], f"relu{at}") for at in range(count)
    ]
    for at in range(count, count + 3):
        nodes.append(helper.make_node("Conv", [f"t{at}", "w"], [f"t{at + 1}"], f"conv{at - count}"))
    shape = ["N", 4, 2, 2]
    return build(nodes, [weight("w", 4, 4, 1, 1)], {"t0": shape}, {f"t{count + 3}": shape})


@pytest.mark.parametrize("excluded", [[], ["conv0"], ["conv1"], ["conv0", "conv1", "conv2"]])
def test_layers_behind_thousands_of_operations_take_a_step_for_each(excluded: list[str]) -> None:
    links = CountingLinks(behind_relus(5000).proto.graph)
    left = left_in_float(links, ["conv0", "conv1", "conv2"], excluded)
    assert len(left) == (5000 if "conv0" in excluded else 0)
    assert links.steps <= 2 * len(links.nodes)


def test_a_model_of_thousands_of_operations_is_soon_quantized() -> None:
    quantizer = StaticQuantizer()
    model, layers = quantizer.prepare(prepare(behind_relus(5000)))
    tensors = {name for node in model.proto.graph.node for name in (*node.input, *node.output)}
    ranges = dict.fromkeys(tensors - {"w"}, (-1.0, 1.0))
    names = [layer.name for layer in layers]
    began = time.process_time()
    for excluded in ([], ["conv0"], names):
        quantizer.quantize(model, ranges, Candidate.excluding(names, excluded))
    # About a second in all; with a walk from each node, one candidate took 44 s.
    assert time.process_time() - began < 30
