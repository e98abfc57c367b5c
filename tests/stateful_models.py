"""Models that are fed in unusual ways: with states, caches, constants; built in code."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.types import Model

Dims = Sequence[int | str | None]


def shaped(
    inputs: Mapping[str, Dims],
    outputs: Mapping[str, Dims],
    types: Mapping[str, int] | None = None,
    nodes: Sequence[onnx.NodeProto] = (),
) -> Model:
    """Return a model of these inputs and outputs; by default it computes nothing of use."""
    types = types or {}
    values = [
        [
            helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), dims)
            for name, dims in each.items()
        ]
        for each in (inputs, outputs)
    ]
    first = next(iter(inputs))
    made = {name for node in nodes for name in node.output}
    nodes = [
        *nodes,
        *(helper.make_node("Identity", [first], [name]) for name in outputs if name not in made),
    ]
    graph = helper.make_graph(nodes, "shaped", *values)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return Model("shaped", proto)


def lstm(hidden: int = 6, features: int = 4) -> Model:
    """Return an LSTM over [batch, steps, features], with its states [1, batch, hidden]."""
    draw = np.random.RandomState(0)
    weights = {
        "W": draw.randn(1, 4 * hidden, features),
        "R": draw.randn(1, 4 * hidden, hidden),
        "head": draw.randn(hidden, 3),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], "steps", perm=[1, 0, 2]),
        helper.make_node(
            "LSTM",
            ["steps", "W", "R", "", "", "h0", "c0"],
            ["", "hn", "cn"],
            "lstm",
            hidden_size=hidden,
        ),
        helper.make_node("Squeeze", ["hn", "axis"], ["last"], "last"),
        helper.make_node("MatMul", ["last", "head"], ["y"], "dense"),
    ]
    state = [1, "batch", hidden]
    model = shaped(
        {"x": ["batch", "steps", features], "h0": state, "c0": state},
        {"y": ["batch", 3], "hn": state, "cn": state},
        nodes=nodes,
    )
    constants = [
        *(numpy_helper.from_array(each.astype(np.float32), key) for key, each in weights.items()),
        numpy_helper.from_array(np.array([0]), "axis"),
    ]
    model.proto.graph.initializer.extend(constants)
    return model


def decoder(width: int = 8, words: int = 11) -> Model:
    """Return a decoder of one attention layer, whose cache grows by the tokens that it reads."""
    draw = np.random.RandomState(0)
    names = ("table", "query", "key", "value", "head")
    shapes = [(words, width), (width, width), (width, width), (width, width), (width, words)]
    tensors = [
        numpy_helper.from_array(draw.randn(*shape).astype(np.float32), name)
        for name, shape in zip(names, shapes, strict=True)
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["embedded"], "embed"),
        *(
            helper.make_node("MatMul", ["embedded", name], [f"own_{name}"], f"make_{name}")
            for name in ("query", "key", "value")
        ),
        *(
            helper.make_node(
                "Concat",
                [f"past_key_values.0.{name}", f"own_{name}"],
                [f"present.0.{name}"],
                f"grow_{name}",
                axis=1,
            )
            for name in ("key", "value")
        ),
        helper.make_node("Transpose", ["present.0.key"], ["turned"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["own_query", "turned"], ["scores"], "score"),
        helper.make_node("Softmax", ["scores"], ["shares"], "share", axis=-1),
        helper.make_node("MatMul", ["shares", "present.0.value"], ["mixed"], "mix"),
        helper.make_node("MatMul", ["mixed", "head"], ["logits"], "make_logits"),
    ]
    past, present = ["batch", "past", width], ["batch", "past + length", width]
    model = shaped(
        {
            "input_ids": ["batch", "length"],
            "past_key_values.0.key": past,
            "past_key_values.0.value": past,
        },
        {
            "logits": ["batch", "length", words],
            "present.0.key": present,
            "present.0.value": present,
        },
        {"input_ids": TensorProto.INT64},
        nodes,
    )
    model.proto.graph.initializer.extend(tensors)
    return model


def chosen_by_rate() -> Model:
    """Return a model with a layer in each branch of an If, chosen by the scalar input `sr`."""
    draw = np.random.RandomState(0)
    branches = {}
    for name in ("high", "low"):
        weight = numpy_helper.from_array(draw.randn(4, 3).astype(np.float32), f"{name}_weight")
        node = helper.make_node("MatMul", ["x", f"{name}_weight"], [f"{name}_y"], f"{name}_dense")
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["batch", 3])
        branches[name] = helper.make_graph([node], name, [], [output], [weight])
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is_high"], "compare"),
        helper.make_node(
            "If",
            ["is_high"],
            ["y"],
            "choose",
            then_branch=branches["high"],
            else_branch=branches["low"],
        ),
    ]
    model = shaped(
        {"x": ["batch", 4], "sr": []}, {"y": ["batch", 3]}, {"sr": TensorProto.INT64}, nodes
    )
    model.proto.graph.initializer.append(numpy_helper.from_array(np.array(16000), "rate"))
    return model
