"""Graphs cut into parts, and what a change to a graph touches."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, feeds, node_names, residual, run, weight
from quantizable_models import mobile, two_outputs

from seqto.graph.prepare import prepare
from seqto.graph.segments import Cut, Span, changed_part, changed_span, find_cuts, part
from seqto.types import Model


def run_parts(parts: list[Model], tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all tensors after these models have run one after another."""
    for each in parts:
        wanted = {value.name: tensors[value.name] for value in each.proto.graph.input}
        outputs = [value.name for value in each.proto.graph.output]
        if outputs:
            tensors = {**tensors, **dict(zip(outputs, run(each, wanted), strict=True))}
    return tensors


def test_cuts_are_where_little_is_kept() -> None:
    cuts = find_cuts(prepare(residual()))
    assert cuts[0] == Cut(0, ("x",), 3 * 8 * 8 * 4)
    assert cuts[-1] == Cut(10, ("y",), 10 * 4)
    # Behind the stem a single tensor is kept, behind `left` also that of the skip connection.
    assert [cut.tensors for cut in cuts[1:-1]] == [
        *(("sr",), ("sr", "lr"), ("sum",)),
        *(("p",), ("f",)),
    ]


@pytest.mark.parametrize("model", [residual(), mobile(), two_outputs()], ids=lambda m: m.name)
def test_parts_in_a_row_are_the_whole(model: Model) -> None:
    prepared = prepare(model)
    cuts = find_cuts(prepared)
    inputs = feeds(prepared)
    wanted = run(prepared, inputs)[0]
    parts = [part(prepared, start, end) for start, end in itertools.pairwise(cuts)]
    for each in parts:
        onnx.checker.check_model(each.proto)
    assert sum(len(node_names(each)) for each in parts) == len(node_names(prepared))
    (output,) = cuts[-1].tensors
    np.testing.assert_array_equal(run_parts(parts, inputs)[output], wanted)
    # Between any other two as well: a skip connection passes by some parts.
    for start, end in itertools.combinations(cuts, 2):
        row = [
            part(prepared, cuts[0], start),
            part(prepared, start, end),
            part(prepared, end, cuts[-1]),
        ]
        np.testing.assert_array_equal(run_parts(row, inputs)[output], wanted)


def test_tensors_without_a_known_type_are_not_cut_at() -> None:
    prepared = prepare(residual())
    proto = prepared.copy_proto()
    del proto.graph.value_info[:]
    assert [cut.position for cut in find_cuts(Model("bare", proto))] == [0, 10]


def test_graphs_inside_nodes_are_read_too() -> None:
    # The branches read `a` from outside: it must be kept until there.
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["a"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", onnx.TensorProto.FLOAT, None)],
        )
        for name, op in (("then", "Neg"), ("else", "Abs"))
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("ReduceMax", ["x"], ["m"], "max", keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"], "greater"),
        helper.make_node("If", ["c"], ["y"], "if", **branches),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    model = build(nodes, [zero], {"x": ["N", 4]}, {"y": ["N", 4]})
    inferred = Model("if", onnx.shape_inference.infer_shapes(model.proto))
    cuts = find_cuts(inferred)
    assert all("a" in cut.tensors for cut in cuts if 0 < cut.position < 4)
    inputs = feeds(model)
    parts = [part(inferred, start, end) for start, end in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(run_parts(parts, inputs)["y"], run(model, inputs)[0])


def changed_weight(model: Model, name: str) -> Model:
    """Return the model with this weight doubled, and nothing else different."""
    proto = model.copy_proto()
    for each in proto.graph.initializer:
        if each.name == name:
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each) * 2, name))
    return Model(model.name, proto)


def test_a_changed_weight_touches_the_nodes_that_read_it() -> None:
    model = prepare(residual())
    assert changed_span(model, model) == Span(0, 0)
    assert changed_span(model, changed_weight(model, "left_w")) == Span(2, 3)
    assert changed_span(model, changed_weight(model, "head_b")) == Span(9, 10)


def with_rounded(model: Model, tensor: str) -> Model:
    """Return the model with a Round behind this tensor, for all who read it."""
    proto = model.copy_proto()
    for node in proto.graph.node:
        node.input[:] = ["rounded" if name == tensor else name for name in node.input]
    producers = [at for at, node in enumerate(proto.graph.node) if tensor in node.output]
    proto.graph.node.insert(
        producers[0] + 1, helper.make_node("Round", [tensor], ["rounded"], "round")
    )
    return Model(model.name, proto)


def test_a_changed_tensor_touches_all_who_read_it() -> None:
    model = prepare(residual())
    # The skip connection reads it as well, but not what comes behind.
    assert changed_span(model, with_rounded(model, "sr")) == Span(2, 6)


@pytest.mark.parametrize("tensor", ["s", "sr", "l", "r", "sum", "f"])
def test_the_changed_part_fits_into_the_original(tensor: str) -> None:
    model = prepare(residual())
    changed = with_rounded(model, tensor)
    cuts, span = find_cuts(model), changed_span(model, changed)
    inputs = feeds(model)
    for start in (cut for cut in cuts if cut.position <= span.first):
        for end in (cut for cut in cuts if cut.position >= span.last):
            row = [
                part(model, cuts[0], start),
                changed_part(model, changed, start, end),
                part(model, end, cuts[-1]),
            ]
            np.testing.assert_array_equal(run_parts(row, inputs)["y"], run(changed, inputs)[0])


def test_the_original_stays_as_it_is() -> None:
    model = prepare(mobile())
    before = model.to_bytes()
    cuts = find_cuts(model)
    part(model, cuts[1], cuts[-1])
    changed_part(model, changed_weight(model, "stem_w"), cuts[0], cuts[-1])
    assert model.to_bytes() == before


def test_a_weight_is_in_every_part_that_reads_it() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Conv", ["a", "w"], ["y"], "two"),
    ]
    shape = ["N", 4, 8, 8]
    model = prepare(build(nodes, [weight("w", 4, 4, 1, 1)], {"x": shape}, {"y": shape}))
    start, middle, end = find_cuts(model)
    for each in (part(model, start, middle), part(model, middle, end)):
        assert [constant.name for constant in each.proto.graph.initializer] == ["w"]
