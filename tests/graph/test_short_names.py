"""Short names inside a model."""

import itertools

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper
from onnx_models import feeds, run

from seqto.graph.short_names import short_names, shorten_names
from seqto.types import Model

CHOICE = """
<ir_version: 8, opset_import: ["" : 17]>
choice (float[n, 4] a, bool[1] b) => (float[n, 4] d)
<float[4] long_weight = {1, 2, 3, 4}, float[4] another_weight = {4, 3, 2, 1}>
{
    [a_long_layer] long_product = Mul (a, long_weight)
    [long_product_cast] long_product_cast = Cast <to=1> (long_product)
    [chosen] c = If (b) <
        then_branch = yes () => (float[n, 4] long_inner) {
            [inner_layer] long_inner = Add (long_product_cast, another_weight)
        },
        else_branch = no () => (float[n, 4] long_other)
        <float[4] own_weight = {0, 0, 1, 1}>
        {
            long_inner = Mul (long_product, own_weight)
            long_other = Add (long_inner, another_weight)
        }
    >
    d = Neg (c)
}
"""


def test_names_are_short_and_different() -> None:
    some = list(itertools.islice(short_names(), 26 + 26 * 36 + 1))
    assert some[:2] == ["a", "b"] and some[25:27] == ["z", "a0"] and some[-1] == "a00"
    assert len({*some}) == len(some)


def test_outputs_stay_and_only_what_people_know_keeps_its_name() -> None:
    proto = onnx.parser.parse_model(CHOICE)
    before = Model("long", onnx.ModelProto.FromString(proto.SerializeToString()))
    shorten_names(proto.graph)
    onnx.checker.check_model(proto, full_check=True)
    given = feeds(before)
    for chosen in ([True], [False]):
        given["b"] = np.array(chosen)
        for one, other in zip(run(before, given), run(Model("short", proto), given), strict=True):
            np.testing.assert_array_equal(one, other)
    assert b"long_inner" not in proto.SerializeToString()
    assert b"_weight" not in proto.SerializeToString()
    graph = proto.graph
    assert [each.name for each in (*graph.input, *graph.output)] == ["a", "b", "d"]
    # A Cast that was named after its output is named after it again.
    names = [node.name for node in graph.node]
    assert names == ["a_long_layer", graph.node[1].output[0], "chosen", ""]


def test_no_tensor_is_named_as_a_node_is() -> None:
    node = helper.make_node("Relu", ["in"], ["middle"], "a")
    last = helper.make_node("Neg", ["middle"], ["out"], "b")
    values = [helper.make_tensor_value_info(name, 1, [1]) for name in ("in", "out")]
    graph = helper.make_graph([node, last], "g", values[:1], values[1:])
    shorten_names(graph)
    assert graph.node[0].output[0] == graph.node[1].input[0] == "c"


def test_notes_on_quantization_and_sparse_weights_are_renamed_too() -> None:
    node = helper.make_node("Add", ["in", "sparse_weight"], ["out"])
    values = [helper.make_tensor_value_info(name, 1, [2]) for name in ("in", "out")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "sparse_weight"),
        numpy_helper.from_array(np.array([1])),
        [2],
    )
    graph.sparse_initializer.append(sparse)
    note = graph.quantization_annotation.add(tensor_name="sparse_weight")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="in")
    shorten_names(graph)
    assert graph.sparse_initializer[0].values.name == note.tensor_name == graph.node[0].input[1]
    assert note.quant_parameter_tensor_names[0].value == "in"
