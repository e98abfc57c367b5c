"""Which operations follow the precision of the layers around them."""

import pytest
from onnx import helper
from onnx_models import build, residual, weight
from quantizable_models import weightless

from seqto.graph.regions import left_in_float, weightless_regions

LAYERS = ("stem", "left", "right", "head")


def test_a_region_is_the_nearest_layers_before_and_after() -> None:
    regions = weightless_regions(residual().proto.graph, LAYERS)
    assert regions == {
        "stem_relu": {"stem", "left", "head"},
        "left_relu": {"left", "right"},
        # Beyond the skip connection lies the stem, behind `right` nothing more.
        "add": {"right", "stem", "head"},
        "add_relu": {"right", "stem", "head"},
        "pool": {"right", "stem", "head"},
        "flatten": {"right", "stem", "head"},
    }


def test_layers_that_are_not_asked_about_are_looked_through() -> None:
    regions = weightless_regions(residual().proto.graph, ["stem", "head"])
    assert regions["left"] == {"stem", "head"}
    assert regions["left_relu"] == {"stem", "head"}


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
    regions = weightless_regions(residual().proto.graph, LAYERS)
    assert left_in_float(regions, LAYERS, excluded) == left


def test_operations_with_no_layer_anywhere_stay_float() -> None:
    regions = weightless_regions(weightless().proto.graph, [])
    assert regions == {"relu": frozenset(), "product": frozenset()}
    assert left_in_float(regions, [], []) == ["relu", "product"]


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
    regions = weightless_regions(model.proto.graph, ["first", "last"])
    assert set(regions.values()) == {frozenset({"first", "last"})}
