"""Tiny models and samples that show one thing about quantization each."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, residual, weight

from seqto.graph.load import input_specs
from seqto.protocols import Quantizer
from seqto.types import Candidate, Model, Samples, Splits, TensorSpec

CHAIN = ("first", "second", "third")
SPIKE = 300.0
"""Small enough that the other values are not rounded to zero beside it, but badly."""


def random_samples(model: Model, count: int = 12, seed: int = 0) -> Samples:
    """Return so many samples that the model's inputs take, with labels from 0 to 9."""
    draw = np.random.RandomState(seed)
    inputs = {
        spec.name: draw.randn(count, *(dim or 1 for dim in spec.shape[1:])).astype(np.float32)
        for spec in input_specs(model)
    }
    ids = tuple(f"random-{seed}-{index}" for index in range(count))
    return Samples(inputs, ids, draw.randint(0, 10, count))


class RandomDataset:
    """A dataset of random samples, for models that no real one fits."""

    name = "random"

    def __init__(self, *, chunk_size: int = 4, labelled: bool = True, seed: int = 0) -> None:
        self.chunk_size = chunk_size
        self._labelled = labelled
        self._seed = seed

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return 8 samples to calibrate and 10 to evaluate on."""
        draw = np.random.RandomState(self._seed)
        parts = []
        for count, kind in ((8, "calibration"), (10, "evaluation")):
            arrays = {
                spec.name: draw.randn(count, *(dim or 1 for dim in spec.shape[1:])).astype(
                    spec.dtype
                )
                for spec in inputs
            }
            labels = draw.randint(0, 10, count) if self._labelled else None
            ids = tuple(f"{kind}-{index}" for index in range(count))
            parts.append(Samples(arrays, ids, labels))
        return Splits(*parts, fingerprint=f"random-{self._seed}-{self._labelled}")


def fully_quantized(model: Model, quantizer: Quantizer) -> Model:
    """Return a prepared model with all its layers in int8, calibrated on random samples."""
    ready, layers = quantizer.prepare(model)
    ranges = quantizer.calibrate(ready, random_samples(ready))
    every = Candidate.excluding([layer.name for layer in layers], [])
    return quantizer.quantize(ready, ranges, every)


def spiked_chain(hard: str | None = None) -> Model:
    """Return three pointwise Convs in a row; the output of the `hard` one has a rare huge value.

    Channel 3 passes through untouched, but for the hard layer, which multiplies it by SPIKE
    before the next layer undoes that. `spiked_samples` fire there in a single pixel, or nowhere.
    """
    nodes, weights, before = [], [], "x"
    for index, name in enumerate(CHAIN):
        values = np.zeros((4, 4, 1, 1), np.float32)
        # A rotation, so that noise is as loud behind each layer as before it.
        rotation = np.linalg.qr(numpy_helper.to_array(weight(name, 3, 3)))[0]
        values[:3, :3, 0, 0] = rotation
        previous = CHAIN[index - 1] if index else None
        gain = SPIKE if name == hard else 1.0
        values[3, 3] = gain / (SPIKE if hard and previous == hard else 1.0)
        weights.append(numpy_helper.from_array(values, f"{name}_w"))
        nodes.append(helper.make_node("Conv", [before, f"{name}_w"], [f"{name}_y"], name))
        before = f"{name}_y"
    return build(
        nodes, weights, {"x": ["N", 4, 8, 8]}, {before: ["N", 4, 8, 8]}, name="spiked_chain"
    )


def spiked_samples(*, fire: bool = True, count: int = 32) -> Samples:
    """Return noise in three channels, and in the fourth nothing but a single pixel of one."""
    pixels = np.random.RandomState(0).randn(count, 4, 8, 8).astype(np.float32)
    pixels[:, 3] = 0
    pixels[0, 3, 2, 5] = fire
    return Samples({"x": pixels}, tuple(map(str, range(count))))


def mobile(blocks: int = 3) -> Model:
    """Return a MobileNet of this many blocks: a classifier of 10 classes, on images of 3 x 8 x 8.

    A block expands, convolves depthwise and projects (Conv with Relu6), and adds what it was given.
    """
    nodes = [helper.make_node("Conv", ["x", "stem_w"], ["b0"], "stem", pads=[1, 1, 1, 1])]
    limits = [("zero", 0.0), ("six", 6.0)]
    weights = [numpy_helper.from_array(np.float32(value), name) for name, value in limits]
    weights += [weight("stem_w", 8, 3, 3, 3), weight("head_w", 10, 8), weight("head_b", 10)]
    for index in range(blocks):
        block = f"block{index}"
        shapes = {"expand": (16, 8, 1, 1), "depthwise": (16, 1, 3, 3), "project": (8, 16, 1, 1)}
        given = f"b{index}"
        for part, shape in shapes.items():
            name, depthwise = f"{block}_{part}", part == "depthwise"
            weights += [weight(f"{name}_w", *shape), weight(f"{name}_b", shape[0])]
            inputs = [given, f"{name}_w", f"{name}_b"]
            options = {"group": 16, "pads": [1, 1, 1, 1]} if depthwise else {}
            nodes.append(helper.make_node("Conv", inputs, [f"{name}_y"], name, **options))
            given = f"{name}_y"
            if part != "project":
                nodes.append(helper.make_node("Clip", [given, "zero", "six"], [f"{name}_c"], ""))
                given = f"{name}_c"
        nodes.append(
            helper.make_node("Add", [given, f"b{index}"], [f"b{index + 1}"], f"{block}_add")
        )
    nodes += [
        helper.make_node("GlobalAveragePool", [f"b{blocks}"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 10]}, name="mobile")


def wide() -> Model:
    """Return a pointwise Conv `conv` of 256 channels and a Gemm `fc`: hardly more than weights."""
    nodes = [
        helper.make_node("Conv", ["x", "conv_w", "conv_b"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc_w", "fc_b"], ["y"], "fc", transB=1),
    ]
    weights = [
        *(weight("conv_w", 256, 512, 1, 1), weight("conv_b", 256)),
        *(weight("fc_w", 128, 1024), weight("fc_b", 128)),
    ]
    return build(nodes, weights, {"x": ["N", 512, 2, 2]}, {"y": ["N", 128]}, name="wide")


def shared_weight() -> Model:
    """Return the Convs `one` and `two`, which read the same weight."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w"], ["y"], "two"),
    ]
    shape = ["N", 4, 8, 8]
    return build(nodes, [weight("w", 4, 4, 1, 1)], {"x": shape}, {"y": shape}, name="shared_weight")


def attention(width: int = 16, heads: int = 4) -> Model:
    """Return an attention block of the MatMuls `q`, `k` and `v`, and `out` behind it.

    It is DistilBERT's, node by node: the one pattern of ONNX Runtime's AttentionFusion that is left
    in opset 13. The dimensions of `mask` have names of their own, or its Reshape would be folded.
    """
    sizes: dict[str, Sequence[int] | int] = {
        **{"first": 0, "second": 1, "axis": [0], "single": [1], "rest": [-1], "width": [width]},
        "heads": [0, -1, heads, width // heads],
    }
    numbers = {"two": 2.0, "small": 1e-5, "zero": 0.0, "root": (width / heads) ** 0.5}
    weights = [
        *(numpy_helper.from_array(np.array(each, np.int64), name) for name, each in sizes.items()),
        *(numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()),
        numpy_helper.from_array(np.float32(-np.inf), "never"),
        *(weight(name, width) for name in ("scale", "shift", "q_b", "k_b", "v_b", "out_b")),
        *(weight(f"{name}_w", width, width) for name in ("q", "k", "v", "out")),
    ]
    shape = ["N", "S", width]
    inputs = {"x": shape, "mask": ["M", "T"]}
    nodes = [*_normalization(), *_mask(), *_projections(), *_weighted_sum()]
    return build(nodes, weights, inputs, {"y": shape}, name="attention", opset=13)


def _normalization() -> list[onnx.NodeProto]:
    """Return the layer normalization `n` of x, as opset 13 has to spell it."""
    return [
        _made("ReduceMean", ["x"], "mean", axes=[-1]),
        _made("Sub", ["x", "mean"], "centred"),
        _made("Pow", ["centred", "two"], "squares"),
        _made("ReduceMean", ["squares"], "variance", axes=[-1]),
        _made("Add", ["variance", "small"], "positive"),
        _made("Sqrt", ["positive"], "deviation"),
        _made("Div", ["centred", "deviation"], "even"),
        _made("Mul", ["even", "scale"], "scaled"),
        _made("Add", ["scaled", "shift"], "n"),
    ]


def _mask() -> list[onnx.NodeProto]:
    """Return which tokens are `hidden`, and the shape `joined` of the block's output."""
    return [
        _made("Shape", ["n"], "shape"),
        _made("Gather", ["shape", "first"], "batch"),
        _made("Gather", ["shape", "second"], "tokens"),
        _made("Unsqueeze", ["batch", "axis"], "batch_1"),
        _made("Unsqueeze", ["tokens", "axis"], "tokens_1"),
        _made("Concat", ["batch_1", "rest", "width"], "joined", axis=0),
        _made("Concat", ["batch_1", "single", "single", "tokens_1"], "mask_shape", axis=0),
        _made("Equal", ["mask", "zero"], "padding"),
        _made("Reshape", ["padding", "mask_shape"], "hidden"),
    ]


def _projections() -> list[onnx.NodeProto]:
    """Return the nodes that make `q_t`, `k_t` and `v_t` of n, a head a matrix."""
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["n", f"{name}_w"], [f"{name}_m"], name),
            _made("Add", [f"{name}_m", f"{name}_b"], f"{name}_a"),
            _made("Reshape", [f"{name}_a", "heads"], f"{name}_r"),
            _made("Transpose", [f"{name}_r"], f"{name}_t", perm=order),
        ]
    return nodes


def _weighted_sum() -> list[onnx.NodeProto]:
    """Return the nodes that make `y` of the heads."""
    return [
        _made("Div", ["q_t", "root"], "q_d"),
        _made("MatMul", ["q_d", "k_t"], "scores"),
        _made("Shape", ["scores"], "scores_shape"),
        _made("Expand", ["hidden", "scores_shape"], "hidden_everywhere"),
        _made("Where", ["hidden_everywhere", "never", "scores"], "masked"),
        _made("Softmax", ["masked"], "shares", axis=3),
        _made("MatMul", ["shares", "v_t"], "sums"),
        _made("Transpose", ["sums"], "sums_t", perm=[0, 2, 1, 3]),
        _made("Reshape", ["sums_t", "joined"], "together"),
        helper.make_node("MatMul", ["together", "out_w"], ["out_m"], "out"),
        _made("Add", ["out_m", "out_b"], "out_a"),
        _made("Add", ["out_a", "n"], "y"),
    ]


def _made(op_type: str, inputs: Sequence[str], output: str, **options: object) -> onnx.NodeProto:
    """Return a node with the name of its output."""
    return helper.make_node(op_type, list(inputs), [output], f"{output}_node", **options)


def weightless() -> Model:
    """Return a model with nothing to quantize: a Relu, and a MatMul of two activations."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("MatMul", ["x", "r"], ["y"], "product"),
    ]
    return build(nodes, [], {"x": ["N", 4, 4]}, {"y": ["N", 4, 4]}, name="weightless")


def two_outputs() -> Model:
    """Return a Conv `conv` whose outputs are `sum` and `negative`, in this order."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Neg", ["a"], ["negative"], "neg"),
        helper.make_node("Identity", ["a"], ["sum"], "same"),
    ]
    shape = ["N", 4, 8, 8]
    outputs = {"sum": shape, "negative": shape}
    return build(nodes, [weight("w", 4, 3, 1, 1)], {"x": ["N", 3, 8, 8]}, outputs, name="two")


def unsteady(operation: str) -> Model:
    """Return a classifier `fc` with Sqrt (NaN of what is negative) or Exp (infinite) behind it."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], "fc"),
        helper.make_node(operation, ["g"], ["y"], "last"),
    ]
    return build(nodes, [weight("w", 6, 4)], {"x": ["N", 6]}, {"y": ["N", 4]}, name="unsteady")


def with_batch(size: int) -> Model:
    """Return the residual model for batches of exactly this size."""
    model = residual()
    for value in (*model.proto.graph.input, *model.proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    return model


def broken() -> Model:
    """Return a model that no runtime can load: it has an operation that does not exist."""
    node = helper.make_node("NoSuchOperation", ["x"], ["y"], "broken")
    return build([node], [], {"x": ["N", 4]}, {"y": ["N", 4]}, name="broken")


def weights_in(model: Model, dtype: int = TensorProto.FLOAT) -> set[str]:
    """Return the names of the tensors of this type that are not scales, zero points or biases."""
    return {
        each.name
        for each in model.proto.graph.initializer
        if each.data_type == dtype and len(each.dims) > 1
    }


def node(model: Model, name: str) -> onnx.NodeProto:
    """Return the node of this name."""
    return next(each for each in model.proto.graph.node if each.name == name)
