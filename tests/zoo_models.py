"""The paper's four models as the ONNX model zoo has them, but for the values of their weights.

Layer shapes, operations, opsets, inputs and outputs are the published ones; weights are seeded
noise that keeps activations in bounds. Images are small, so that tests are quick: no layer of
these networks depends on the resolution.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.types import Model

CLASSES = 1000


class Graph:
    """A graph under construction: each method adds nodes behind a tensor and returns the next."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def node(self, operation: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node called by its operation and number, and return its first output."""
        name = f"{operation}_{len(self.nodes)}"
        made = [f"{name}_out{index or ''}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operation, list(inputs), made, name, **attributes))
        return made[0]

    def constant(self, values: np.ndarray, name: str = "constant") -> str:
        """Add an initializer."""
        name = f"{name}_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def noise(self, *shape: int, scale: float) -> np.ndarray:
        """Return seeded noise."""
        return self._random.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def conv(
        self,
        given: str,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        group: int = 1,
        norm: bool = True,
        pads: Sequence[int] | None = None,
    ) -> str:
        """Add a convolution with its batch normalization, or with a bias instead."""
        around = [kernel // 2] * 4 if pads is None else list(pads)
        fan_in = inputs // group * kernel * kernel
        shape = (outputs, inputs // group, kernel, kernel)
        weight = self.constant(self.noise(*shape, scale=math.sqrt(2 / fan_in)), "weight")
        bias = [] if norm else [self.constant(self.noise(outputs, scale=0.1), "bias")]
        made = self.node(
            "Conv",
            *(given, weight, *bias),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=around,
            group=group,
            dilations=[1, 1],
        )
        return self.batch_norm(made, outputs) if norm else made

    def batch_norm(self, given: str, channels: int) -> str:
        """Add a batch normalization as it is after training."""
        one = np.ones(channels, np.float32)
        parameters = [
            one + self.noise(channels, scale=0.1),
            self.noise(channels, scale=0.1),
            self.noise(channels, scale=0.1),
            one + np.abs(self.noise(channels, scale=0.1)),
        ]
        names = [self.constant(values, "norm") for values in parameters]
        return self.node("BatchNormalization", given, *names, epsilon=1e-5)

    def gemm(self, given: str, inputs: int, outputs: int = CLASSES) -> str:
        """Add the classifier."""
        weight = self.constant(self.noise(outputs, inputs, scale=1 / math.sqrt(inputs)), "weight")
        bias = self.constant(self.noise(outputs, scale=0.1), "bias")
        return self.node("Gemm", given, weight, bias, transB=1)

    def model(
        self,
        name: str,
        opset: int,
        given: tuple[str, Sequence[int | str]],
        output: tuple[str, str],
        batch: int | str,
    ) -> Model:
        """Return the model from the named input to the tensor that becomes the named output."""
        self.nodes.append(helper.make_node("Identity", [output[1]], [output[0]], "last"))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, list(given[1]))],
            [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, [batch, CLASSES])],
            self.weights,
        )
        opsets = [helper.make_opsetid("", opset)]
        return Model(name, helper.make_model(graph, opset_imports=opsets, ir_version=6))


def mobilenetv2(pixels: int = 32) -> Model:
    """Return MobileNetV2: opset 10, a free batch, folded norms, Clip by attribute, logits."""
    graph = Graph(seed=1)

    def relu6(given: str) -> str:
        return graph.node("Clip", given, min=0.0, max=6.0)

    plain = {"norm": False}
    x, width = relu6(graph.conv("input", 3, 32, 3, 2, **plain)), 32
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expand, outputs, repeats, stride in [*plan, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(repeats):
            inner, before = width * expand, x
            step = stride if index == 0 else 1
            if expand > 1:
                x = relu6(graph.conv(x, width, inner, **plain))
            x = relu6(graph.conv(x, inner, inner, 3, step, group=inner, **plain))
            x = graph.conv(x, inner, outputs, **plain)
            if step == 1 and width == outputs:
                x = graph.node("Add", before, x)
            width = outputs
    x = graph.node("GlobalAveragePool", relu6(graph.conv(x, width, 1280, **plain)))
    # The batch is looked up, as PyTorch wrote `x.view(x.size(0), -1)`.
    zero = graph.constant(np.array(0, np.int64))
    size = graph.node("Gather", graph.node("Shape", x), zero, axis=0)
    size = graph.node("Unsqueeze", size, axes=[0])
    rest = graph.constant(np.array([-1], np.int64))
    x = graph.node("Reshape", x, graph.node("Concat", size, rest, axis=0))
    shape = ["batch_size", 3, pixels, pixels]
    return graph.model(
        "mobilenetv2", 10, ("input", shape), ("output", graph.gemm(x, 1280)), "batch_size"
    )


def shufflenetv2(pixels: int = 32) -> Model:
    """Return ShuffleNetV2 x1.0: opset 10, a batch of 1, Split and channel shuffle, logits."""
    graph = Graph(seed=2)

    def relu(given: str) -> str:
        return graph.node("Relu", given)

    def depthwise(given: str, channels: int, stride: int) -> str:
        return graph.conv(given, channels, channels, 3, stride, group=channels)

    def shuffled(given: str, channels: int, side: int) -> str:
        shapes = [[1, 2, channels // 2, side, side], [1, -1, side, side]]
        apart, together = (graph.constant(np.array(each, np.int64)) for each in shapes)
        x = graph.node("Reshape", given, apart)
        return graph.node("Reshape", graph.node("Transpose", x, perm=[0, 2, 1, 3, 4]), together)

    x, width, side = relu(graph.conv("input", 3, 24, 3, 2)), 24, pixels // 4
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for outputs, repeats in ((116, 4), (232, 8), (464, 4)):
        half, side = outputs // 2, side // 2
        for index in range(repeats):
            if index == 0:
                left = relu(graph.conv(depthwise(x, width, 2), width, half))
                right, inner = x, width
            else:
                left = graph.node("Split", x, outputs=2, axis=1, split=[half, half])
                right, inner = f"{left}1", half
            right = relu(graph.conv(right, inner, half))
            right = relu(graph.conv(depthwise(right, half, 2 if index == 0 else 1), half, half))
            x = shuffled(graph.node("Concat", left, right, axis=1), outputs, side)
        width = outputs
    x = relu(graph.conv(x, width, 1024))
    x = graph.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    shape = [1, 3, pixels, pixels]
    return graph.model("shufflenetv2", 10, ("input", shape), ("output", graph.gemm(x, 1024)), 1)


def efficientnet_lite4(pixels: int = 32) -> Model:
    """Return EfficientNet-Lite4: opset 11, NHWC, a batch of 1, TensorFlow's padding, softmax."""
    graph = Graph(seed=3)
    limits = [graph.constant(np.array(value, np.float32)) for value in (0.0, 6.0)]
    side = pixels

    def relu6(given: str) -> str:
        return graph.node("Clip", given, *limits)

    def same(given: str, inputs: int, outputs: int, kernel: int, stride: int, group: int) -> str:
        nonlocal side
        made = -(-side // stride)
        missing = max((made - 1) * stride + kernel - side, 0)
        low, side = missing // 2, made
        pads = [low, low, missing - low, missing - low]
        return graph.conv(
            given, inputs, outputs, kernel, stride, group=group, norm=False, pads=pads
        )

    x = graph.node("Transpose", "images:0", perm=[0, 3, 1, 2])
    x, width = relu6(same(x, 3, 32, 3, 2, 1)), 32
    plan = [(1, 24, 1, 1, 3), (6, 32, 4, 2, 3), (6, 56, 4, 2, 5), (6, 112, 6, 2, 3)]
    for expand, outputs, repeats, stride, kernel in [
        *plan,
        *((6, 160, 6, 1, 5), (6, 272, 8, 2, 5), (6, 448, 1, 1, 3)),
    ]:
        for index in range(repeats):
            inner, before = width * expand, x
            step = stride if index == 0 else 1
            if expand > 1:
                x = relu6(same(x, width, inner, 1, 1, 1))
            x = relu6(same(x, inner, inner, kernel, step, inner))
            x = same(x, inner, outputs, 1, 1, 1)
            if step == 1 and width == outputs:
                x = graph.node("Add", x, before)
            width = outputs
    x = graph.node("GlobalAveragePool", relu6(same(x, width, 1280, 1, 1, 1)))
    x = graph.node("Squeeze", x, axes=[2, 3])
    weight = graph.constant(graph.noise(1280, CLASSES, scale=1 / 36), "weight")
    bias = graph.constant(graph.noise(CLASSES, scale=0.1), "bias")
    x = graph.node("Add", graph.node("MatMul", x, weight), bias)
    x = graph.node("Softmax", x, axis=1)
    shape = [1, pixels, pixels, 3]
    return graph.model("efficientnet_lite4", 11, ("images:0", shape), ("Softmax:0", x), 1)


RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""The stages of ResNet50: inner channels, blocks, stride."""


def resnet50(
    pixels: int = 32, stem: int = 64, stages: Sequence[tuple[int, int, int]] = RESNET50
) -> Model:
    """Return ResNet50 v1: opset 12, a free batch, residual bottlenecks with norms, logits."""
    graph = Graph(seed=4)

    def relu(given: str) -> str:
        return graph.node("Relu", given)

    x, width = relu(graph.conv("data", 3, stem, 7, 2)), stem
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for inner, repeats, stride in stages:
        for index in range(repeats):
            step, before = stride if index == 0 else 1, x
            y = relu(graph.conv(x, width, inner, 1, step))
            y = relu(graph.conv(y, inner, inner, 3))
            y = graph.conv(y, inner, 4 * inner)
            if index == 0:
                before = graph.conv(x, width, 4 * inner, 1, step)
            x, width = relu(graph.node("Add", y, before)), 4 * inner
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    shape = ["N", 3, pixels, pixels]
    return graph.model("resnet50", 12, ("data", shape), ("output", graph.gemm(x, width)), "N")


@dataclass(frozen=True)
class ZooModel:
    """A model of the paper: how it is made, its layers, and its size there in MiB."""

    make: Callable[..., Model]
    layers: int
    opset: int
    mebibytes: float

    @property
    def name(self) -> str:
        """The name that its config has."""
        return self.make.__name__


# Layers: the stem, three a block (two in a block that does not expand, five in one that shuffles
# with stride 2, four in one with a projected shortcut), the last convolution and the classifier.
ZOO = (
    ZooModel(mobilenetv2, 1 + 2 + 16 * 3 + 1 + 1, 10, 13.32),
    ZooModel(shufflenetv2, 1 + 3 * 5 + 13 * 3 + 1 + 1, 10, 8.80),
    ZooModel(efficientnet_lite4, 1 + 2 + 29 * 3 + 1 + 1, 11, 49.54),
    ZooModel(resnet50, 1 + 16 * 3 + 4 + 1, 12, 97.82),
)
