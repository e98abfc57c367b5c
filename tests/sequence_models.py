"""Tiny models of texts and series: embedding tables, recurrent layers, transposed convolutions."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, weight

from seqto.graph.load import input_specs
from seqto.types import Model, Samples

WORDS, WIDTH, LENGTH = 300, 40, 12
"""How many words are known, the values of each of them, and how many words are a text."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""How many gates recurrent layers have, by operation."""


def texts(model: Model, count: int = 6, seed: int = 0) -> Samples:
    """Return samples for any inputs: words where they are integers."""
    draw = np.random.RandomState(seed)
    inputs = {
        spec.name: (
            draw.randint(0, WORDS, (count, *(dim or 1 for dim in spec.shape[1:])))
            if spec.dtype.startswith("int")
            else draw.randn(count, *(dim or 1 for dim in spec.shape[1:]))
        ).astype(spec.dtype)
        for spec in input_specs(model)
    }
    return Samples(inputs, tuple(map(str, range(count))), draw.randint(0, 10, count))


def with_words(model: Model, *inputs: str) -> Model:
    """Return the model, whose inputs of these names become integers."""
    for value in model.proto.graph.input:
        if value.name in inputs:
            value.type.tensor_type.elem_type = TensorProto.INT64
    return model


def reader(words: int = WORDS, width: int = WIDTH) -> Model:
    """Return a classifier of texts: the tables `embed` and `place`, a MatMul `mix`, a Gemm `head`.

    Another Gather, `first`, takes the first word's state; that of `sizes` is of integers, and that
    of `few` has too few values to count.
    """
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("Shape", ["ids"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "one"], ["length"], "sizes", axis=0),
        helper.make_node("Range", ["zero", "length", "one"], ["places"], "range"),
        helper.make_node("Gather", ["place_table", "places"], ["p"], "place"),
        helper.make_node("Gather", ["small", "ids_even"], ["s"], "few"),
        helper.make_node("Mod", ["ids", "two"], ["ids_even"], "mod"),
        helper.make_node("Add", ["e", "p"], ["ep"], "add"),
        helper.make_node("Mul", ["ep", "s"], ["eps"], "mul"),
        helper.make_node("MatMul", ["eps", "mix_w"], ["m"], "mix"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Gather", ["r", "zero"], ["f"], "first", axis=1),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    nodes[5], nodes[6] = nodes[6], nodes[5]
    numbers = {"zero": 0, "one": 1, "two": 2}
    weights = [
        *(
            numpy_helper.from_array(np.array(each, np.int64), name)
            for name, each in numbers.items()
        ),
        *(
            weight("table", words, width),
            weight("place_table", LENGTH, width),
            weight("small", 2, 1),
        ),
        *(weight("mix_w", width, width), weight("head_w", 10, width), weight("head_b", 10)),
    ]
    model = build(nodes, weights, {"ids": ["N", LENGTH]}, {"y": ["N", 10]}, name="reader")
    return with_words(model, "ids")


def tied(words: int = WORDS, width: int = WIDTH) -> Model:
    """Return a model of the next word: `embed`'s table is also the weight of `head`, a Gemm."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("ReduceMean", ["e"], ["mean"], "mean", axes=[1], keepdims=0),
        helper.make_node("Gemm", ["mean", "mix_w"], ["m"], "mix"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "table"], ["y"], "head", transB=1),
    ]
    weights = [weight("table", words, width), weight("mix_w", width, width)]
    model = build(nodes, weights, {"ids": ["N", LENGTH]}, {"y": ["N", words]}, name="tied")
    return with_words(model, "ids")


def recurrent(kind: str, size: int = 24, hidden: int = 16, *, directions: int = 2) -> Model:
    """Return the recurrent layer `cell` over 12 steps of a series, and a Gemm `head` behind it.

    Only the last state of the cell is used, so that its first output has no name.
    """
    gates = GATES[kind]
    outputs = ["", "last"]
    direction = "bidirectional" if directions == 2 else "forward"
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "turn", perm=[1, 0, 2]),
        helper.make_node(
            *(kind, ["t", "w", "r", "b"], outputs, "cell"), hidden_size=hidden, direction=direction
        ),
        helper.make_node("Transpose", ["last"], ["l"], "turn_back", perm=[1, 0, 2]),
        helper.make_node("Flatten", ["l"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    weights = [
        *(weight("w", directions, gates * hidden, size),),
        *(weight("r", directions, gates * hidden, hidden),),
        *(weight("b", directions, 2 * gates * hidden),),
        *(weight("head_w", 10, directions * hidden), weight("head_b", 10)),
    ]
    return build(nodes, weights, {"x": ["N", LENGTH, size]}, {"y": ["N", 10]}, name=kind.lower())


def upsampler() -> Model:
    """Return the Conv `conv`, and the ConvTranspose `up` behind it."""
    nodes = [
        helper.make_node("Conv", ["x", "conv_w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("ConvTranspose", ["r", "up_w", "up_b"], ["y"], "up", strides=[2, 2]),
    ]
    weights = [weight("conv_w", 16, 3, 3, 3), weight("up_w", 16, 24, 2, 2), weight("up_b", 24)]
    shape: Sequence[int | str] = ["N", 24, 16, 16]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": shape}, name="upsampler")


def floats_in(model: Model) -> set[str]:
    """Return the names of the float32 initializers that are weights of layers in these models."""
    return {
        each.name
        for each in model.proto.graph.initializer
        if each.data_type == TensorProto.FLOAT
        and len(each.dims) > 1
        and each.name != "small"
        # Biases of recurrent layers have two axes, and so have some scales.
        and each.name != "b"
        and not each.name.endswith("_scale")
    }


def constant(model: Model, name: str) -> np.ndarray:
    """Return the values of an initializer."""
    found: onnx.TensorProto = next(
        each for each in model.proto.graph.initializer if each.name == name
    )
    return numpy_helper.to_array(found)


def masked_attention(hidden: float = -3.4e38, width: int = 32) -> Model:
    """Return attention of one head over embedded words, of which word 0 is padding.

    The layers are `embed`, `q`, `k`, `v` and `out`; the scores of padding get `hidden` added.
    Normalization is spelt out behind it, as before opset 17.
    """
    numbers = {"scale": width**-0.5, "hidden": hidden, "two": 2.0, "small": 1e-5}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("Equal", ["ids", "padding"], ["p"], "is_padding"),
        helper.make_node("Cast", ["p"], ["pf"], "as_float", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["pf", "axis"], ["pu"], "for_all"),
        helper.make_node("Mul", ["pu", "hidden"], ["mask"], "mask"),
        *(helper.make_node("MatMul", ["e", f"{each}_w"], [each], each) for each in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["products"], "products"),
        helper.make_node("Mul", ["products", "scale"], ["scores"], "scaled"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], "masked"),
        helper.make_node("Softmax", ["masked"], ["shares"], "softmax", axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["sums"], "sums"),
        helper.make_node("MatMul", ["sums", "out_w"], ["o"], "out"),
        helper.make_node("Add", ["o", "e"], ["r"], "residual"),
        helper.make_node("ReduceMean", ["r"], ["mean"], "mean", axes=[-1]),
        helper.make_node("Sub", ["r", "mean"], ["c"], "centred"),
        helper.make_node("Pow", ["c", "two"], ["squares"], "squares"),
        helper.make_node("ReduceMean", ["squares"], ["variance"], "variance", axes=[-1]),
        helper.make_node("Add", ["variance", "small"], ["positive"], "positive"),
        helper.make_node("Sqrt", ["positive"], ["deviation"], "deviation"),
        helper.make_node("Div", ["c", "deviation"], ["n"], "even"),
        helper.make_node("MatMul", ["n", "head_w"], ["y"], "head"),
    ]
    weights = [
        *(numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()),
        numpy_helper.from_array(np.array(0, np.int64), "padding"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
        weight("table", WORDS, width),
        *(weight(f"{each}_w", width, width) for each in ("q", "k", "v", "out", "head")),
    ]
    shape: Sequence[int | str] = ["N", LENGTH, width]
    model = build(nodes, weights, {"ids": ["N", LENGTH]}, {"y": shape}, name="masked_attention")
    return with_words(model, "ids")


def detector() -> Model:
    """Return a detector: `boxes` in pixels and `scores` below 1 in one output of 8 channels."""
    nodes = [
        helper.make_node("Conv", ["x", "stem_w"], ["s"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["s"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "boxes_w"], ["b"], "boxes"),
        helper.make_node("Mul", ["b", "pixels"], ["bp"], "in_pixels"),
        helper.make_node("Conv", ["r", "scores_w"], ["c"], "scores"),
        helper.make_node("Sigmoid", ["c"], ["cs"], "sigmoid"),
        helper.make_node("Concat", ["bp", "cs"], ["y"], "together", axis=1),
    ]
    weights = [
        *(weight("stem_w", 8, 3, 3, 3), weight("boxes_w", 4, 8, 1, 1)),
        *(weight("scores_w", 4, 8, 1, 1), numpy_helper.from_array(np.float32(300), "pixels")),
    ]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 8, 8, 8]}, name="detector")
