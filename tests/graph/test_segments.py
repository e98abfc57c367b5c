"""Graphs cut into parts, and what a change to a graph touches."""

import gc
import itertools
import weakref

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, feeds, node_names, op_types, residual, run, weight
from quantizable_models import mobile, random_samples, shared_weight, two_outputs

from seqto.graph import segments
from seqto.graph.prepare import prepare
from seqto.graph.segments import (
    Cut,
    Span,
    changed_part,
    changed_span,
    clean_cuts,
    common_nodes,
    find_cuts,
    in_order,
    part,
)
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.float_prefixes import SharedPrefixes
from seqto.types import Candidate, Model, Observed


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


def test_the_original_is_read_once_for_all_that_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, written = prepare(residual()), []
    text = segments._text
    monkeypatch.setattr(segments, "_text", lambda node: written.append(node.name) or text(node))
    cuts = find_cuts(model)
    for _ in range(3):
        changed = Model(model.name, model.copy_proto())
        changed_part(model, changed, cuts[0], cuts[-1])
        assert changed_span(model, changed) == Span(0, 0)
    # Each of the three once, and the original once.
    assert len(written) == 4 * len(model.proto.graph.node)


def test_what_is_known_of_a_model_goes_with_it() -> None:
    model = prepare(residual())
    find_cuts(model)
    part(model, *find_cuts(model)[:2])
    gone = weakref.ref(model)
    assert model in segments._outlines
    known = len(segments._outlines)
    del model
    gc.collect()
    assert gone() is None and len(segments._outlines) < known


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


def quantized(excluded: tuple[str, ...] = (), **options: object) -> Model:
    """Return `residual` quantized statically, but for these layers."""
    quantizer = StaticQuantizer(**options)
    model, layers = quantizer.prepare(prepare(residual()))
    ranges = quantizer.calibrate(model, random_samples(model))
    names = [layer.name for layer in layers]
    return quantizer.quantize(model, ranges, Candidate.excluding(names, excluded))


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("excluded", [(), ("left",), ("stem", "right")])
def test_a_model_in_order_computes_the_same(excluded: tuple[str, ...], optimized: bool) -> None:
    model = quantized(excluded)
    ordered = in_order(model)
    onnx.checker.check_model(ordered.proto)
    inputs = feeds(model)
    outputs = (run(each, inputs, optimized=optimized)[0] for each in (model, ordered))
    np.testing.assert_array_equal(*outputs)


def test_in_order_a_node_is_just_before_what_needs_it() -> None:
    model = quantized()
    # ONNX Runtime's quantizer puts what is made of constants first.
    assert op_types(model)[:3] != ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear"]
    pair, layer = ["QuantizeLinear", "DequantizeLinear"], ["DequantizeLinear", "Conv"]
    assert op_types(in_order(model))[:8] == [*pair, *layer, *pair, *layer]


def test_the_order_does_not_depend_on_that_of_the_model() -> None:
    model = prepare(residual())
    proto = model.copy_proto()
    nodes = [model.proto.graph.node[at] for at in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)]
    del proto.graph.node[:]
    # No valid order at all, which tells all the more.
    proto.graph.node.extend(nodes[::-1])
    assert node_names(in_order(Model("other", proto))) == node_names(model)


def test_what_the_first_output_does_not_need_is_left_out() -> None:
    assert "neg" not in node_names(in_order(prepare(two_outputs())))


def test_in_order_each_reader_has_its_own_dequantized_tensor() -> None:
    ordered = in_order(quantized())
    read = [
        node.input[0] for node in ordered.proto.graph.node if node.op_type == "DequantizeLinear"
    ]
    # The skip connection: `left` and `add`.
    assert read.count("sr_QuantizeLinear_Output") == 2
    made = [name for node in ordered.proto.graph.node for name in node.output]
    assert len(made) == len(set(made))


def test_clean_cuts_are_where_tensors_are_quantized_or_a_layer_begins() -> None:
    cuts = clean_cuts(in_order(quantized()))
    assert [cut.tensors for cut in cuts[1:4]] == [
        ("x_QuantizeLinear_Output",),
        ("sr_QuantizeLinear_Output",),
        ("sr_QuantizeLinear_Output", "lr_QuantizeLinear_Output"),
    ]
    assert cuts[1].sample_bytes == 3 * 8 * 8
    # In float the addition reads what the skip connection keeps: only the Gemm is behind it.
    assert [cut.tensors for cut in clean_cuts(in_order(prepare(residual())))] == [
        *(("x",), ("f",), ("y",)),
    ]


def test_signed_tensors_are_not_cut_at() -> None:
    cuts = clean_cuts(in_order(quantized(activation_type="int8")))
    assert all("QuantizeLinear" not in name for cut in cuts for name in cut.tensors)


@pytest.mark.parametrize("excluded", [(), ("left",), ("right",)])
def test_parts_between_clean_cuts_are_the_whole_to_the_bit(excluded: tuple[str, ...]) -> None:
    model = quantized(excluded)
    ordered, inputs = in_order(model), feeds(model)
    wanted = run(model, inputs, optimized=True)[0]
    cuts = clean_cuts(ordered)
    assert len(cuts) > 2
    for cut in cuts[1:-1]:
        tensors = dict(inputs)
        for start, end in ((cuts[0], cut), (cut, cuts[-1])):
            each = part(ordered, start, end)
            given = {value.name: tensors[value.name] for value in each.proto.graph.input}
            names = [value.name for value in each.proto.graph.output]
            tensors |= dict(zip(names, run(each, given, optimized=True), strict=True))
        np.testing.assert_array_equal(tensors["y"], wanted)


def test_common_nodes_end_where_models_part() -> None:
    model = in_order(prepare(residual()))
    assert common_nodes(model, model) == 10
    assert common_nodes(model, changed_weight(model, "left_w")) == 2
    assert common_nodes(model, changed_weight(model, "head_b")) == 9
    assert common_nodes(model, with_rounded(model, "sum")) == 6
    whole, without = in_order(quantized()), in_order(quantized(("right",)))
    count = common_nodes(whole, without)
    assert 0 < count < len(node_names(whole))
    assert node_names(whole)[:count] == node_names(without)[:count]


def test_models_of_other_settings_have_nothing_in_common() -> None:
    model = in_order(prepare(residual()))
    assert common_nodes(model, Model("same", model.proto, {"session.some": "1"})) == 0
    proto = model.copy_proto()
    proto.opset_import[0].version += 1
    assert common_nodes(model, Model("same", proto)) == 0


def test_parts_have_the_session_options_of_the_whole() -> None:
    model = Model("optional", prepare(residual()).proto, {"session.some": "1"})
    cuts = find_cuts(model)
    assert part(model, cuts[0], cuts[1]).session == model.session
    assert in_order(model).session == model.session


def test_a_shared_weight_that_is_quantized_touches_all_who_read_it() -> None:
    quantizer = DynamicQuantizer()
    model, _ = quantizer.prepare(prepare(shared_weight()))
    # ORT makes the other layer read the dequantized weight, although it stays float.
    one = quantizer.quantize(model, {}, Candidate.of({"one": "int8", "two": "float32"}))
    assert changed_span(model, one) == Span(0, 3)
    samples = random_samples(model, 1)
    runs = SharedPrefixes(model, samples, 1, Observed({"y": 0}))
    (wanted,) = run(one, dict(samples.inputs), optimized=True)
    np.testing.assert_array_equal(next(runs.outputs(one))["y"], wanted[0])


def test_coded_weights_are_decoded_before_a_model_is_cut() -> None:
    quantizer = WeightOnlyQuantizer()
    ready, layers = quantizer.prepare(prepare(mobile()))
    names = [layer.name for layer in layers]
    models = [
        in_order(quantizer.quantize(ready, {}, Candidate.of(precisions)))
        for precisions in (
            dict.fromkeys(names, "coded_0.5"),
            {name: "int8" if name == names[-1] else "coded_0.5" for name in names},
        )
    ]
    assert not models[0].proto.functions
    # Though all weights were in one stream, only the last layer differs.
    assert common_nodes(*models) >= len(models[0].proto.graph.node) - 2
    cuts = clean_cuts(models[0])
    assert len(cuts) >= 3
    inputs = feeds(ready)
    wanted = run(models[0], inputs, optimized=True)[0]
    middle = cuts[len(cuts) // 2]
    first, second = part(models[0], cuts[0], middle), part(models[0], middle, cuts[-1])
    names_between = [each.name for each in first.proto.graph.output]
    between = dict(zip(names_between, run(first, inputs, optimized=True), strict=True))
    np.testing.assert_array_equal(run(second, between, optimized=True)[0], wanted)
