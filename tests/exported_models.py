"""Small models of the kinds that people export, in the form that PyTorch's exporter gives them.

Weights of MatMuls are called `onnx::MatMul_123`, shapes and numbers are Constant nodes, and nodes
have paths as names. Weights are seeded noise that keeps activations in bounds; the last layers of
those that have targets are fitted to them, so that outputs mean something and int8 changes them
a little.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import run
from zoo_models import Graph

from seqto.graph.inner import with_outputs
from seqto.types import Arrays, Model

Dims = Sequence[int | str]

TOPICS, WORDS = 8, 40
"""Tokens of the sentences: the ids of topic t are t * WORDS + 1 and on; 0 is padding."""

VOCABULARY = TOPICS * WORDS + 1


class Export(Graph):
    """A graph under construction, with PyTorch's names."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._path = ""

    def at(self, path: str) -> "Export":
        """Name the next nodes after this module."""
        self._path = path
        return self

    def node(self, operation: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node called by its path and number, and return its first output."""
        name = f"{self._path}/{operation}_{len(self.nodes)}"
        made = [f"{name}_output_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operation, list(inputs), made, name, **attributes))
        return made[0]

    def number(self, value: object, dtype: type = np.int64) -> str:
        """Add a Constant node."""
        return self.node("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def real(self, value: float) -> str:
        """Add a Constant node of a float."""
        return self.number(value, np.float32)

    def weight(self, name: str, *shape: int, scale: float) -> str:
        """Add seeded noise as an initializer of this name."""
        self.weights.append(numpy_helper.from_array(self.noise(*shape, scale=scale), name))
        return name

    def dense(self, given: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """Add a MatMul, and its bias as PyTorch does."""
        number = 100 + len(self.weights)
        weight = self.weight(
            f"onnx::MatMul_{number}", inputs, outputs, scale=gain / math.sqrt(inputs)
        )
        bias = self.weight(f"model{self._path.replace('/', '.')}.{number}.bias", outputs, scale=0.1)
        return self.node("Add", bias, self.node("MatMul", given, weight))

    def norm(self, given: str, width: int) -> str:
        """Add a layer normalization whose gains differ, as trained ones do."""
        gains = 1 + self.noise(width, scale=0.3)
        names = [self.constant(gains, "gain"), self.constant(self.noise(width, scale=0.1), "shift")]
        return self.node("LayerNormalization", given, *names, axis=-1, epsilon=1e-5)

    def gelu(self, given: str) -> str:
        """Add a Gelu by Erf."""
        part = self.node("Erf", self.node("Div", given, self.real(math.sqrt(2))))
        whole = self.node("Mul", given, self.node("Add", part, self.real(1)))
        return self.node("Mul", whole, self.real(0.5))

    def heads(self, given: str, heads: int, width: int, *, turned: bool = False) -> str:
        """Add the nodes that part a sequence into heads; `turned` as keys are multiplied."""
        apart = self.node("Reshape", given, self.number([0, -1, heads, width // heads]))
        return self.node("Transpose", apart, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])

    def attend(self, queries: str, keys: str, values: str, width: int, mask: str = "") -> str:
        """Add attention over turned keys; `mask` is added to the scores."""
        scores = self.node("MatMul", queries, keys)
        if mask:
            scores = self.node("Add", scores, mask)
        together = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        together = self.node("Transpose", together, perm=[0, 2, 1, 3])
        return self.node("Reshape", together, self.number([0, -1, width]))

    def block(self, given: str, width: int, heads: int, mask: str = "") -> str:
        """Add a block of an encoder: attention and a perceptron, each behind a normalization."""
        normal = self.norm(given, width)
        scale = self.real(math.sqrt(heads / width))
        parts = [self.dense(normal, width, width, gain=1.5) for _ in range(3)]
        queries = self.node("Mul", self.heads(parts[0], heads, width), scale)
        keys, values = (
            self.heads(parts[1], heads, width, turned=True),
            self.heads(parts[2], heads, width),
        )
        mixed = self.dense(self.attend(queries, keys, values, width, mask), width, width)
        given = self.node("Add", given, mixed)
        inner = self.gelu(self.dense(self.norm(given, width), width, 4 * width))
        return self.node("Add", given, self.dense(inner, 4 * width, width))

    def export(
        self,
        name: str,
        inputs: Mapping[str, tuple[int, Dims]],
        outputs: Mapping[str, tuple[str, Dims]],
        opset: int = 17,
    ) -> Model:
        """Return the model; outputs are given by their tensors here."""
        for public, (tensor, _) in outputs.items():
            self.at("").nodes.append(
                helper.make_node("Identity", [tensor], [public], f"/Identity_{public}")
            )
        graph = helper.make_graph(
            self.nodes,
            "main_graph",
            [
                helper.make_tensor_value_info(each, kind, list(dims))
                for each, (kind, dims) in inputs.items()
            ],
            [
                helper.make_tensor_value_info(each, TensorProto.FLOAT, list(dims))
                for each, (_, dims) in outputs.items()
            ],
            self.weights,
        )
        opsets = [helper.make_opsetid("", opset)]
        return Model(name, helper.make_model(graph, opset_imports=opsets, ir_version=8))


def fit(model: Model, layer: str, inputs: Arrays, targets: np.ndarray, *, axis: int = -1) -> None:
    """Change a layer's weight and bias so that its output is nearest to these targets.

    It is a MatMul and an Add, or a Conv of one pixel; `axis` is that of the features. Rare targets
    count as much as frequent ones.
    """
    nodes = model.proto.graph.node
    node = next(each for each in nodes if each.name == layer)
    add = next((each for each in nodes if node.output[0] in each.input[1:]), node)
    features = run(with_outputs(model, [node.input[0]]), dict(inputs))[-1]
    rows = np.moveaxis(features, axis, -1).reshape(-1, features.shape[axis]).astype(np.float64)
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    wanted = np.moveaxis(targets, axis, -1).reshape(len(rows), -1)
    _, kinds, counts = np.unique(wanted, axis=0, return_inverse=True, return_counts=True)
    weighed = rows.T / counts[kinds.reshape(-1)]
    square = weighed @ rows + 1e-4 * np.eye(rows.shape[1])
    found = np.linalg.solve(square, weighed @ wanted).astype(np.float32)
    weight = found[:-1] if axis == -1 else found[:-1].T[..., None, None]
    bias = node.input[2] if node.op_type == "Conv" else add.input[0]
    _set(model, {node.input[1]: np.ascontiguousarray(weight), bias: found[-1]})


def _set(model: Model, values: Mapping[str, np.ndarray]) -> None:
    """Give initializers of the model new values."""
    for tensor in model.proto.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))


# A vision transformer.


def patterns(count: int = 96, seed: int = 0) -> tuple[Arrays, np.ndarray]:
    """Return noisy pictures of 3 x 32 x 32 of ten classes, and their classes."""
    draw = np.random.default_rng(seed)
    classes = np.arange(count) % 10
    means = np.random.default_rng(99).standard_normal((10, 3, 8, 8)).repeat(4, 2).repeat(4, 3)
    pictures = means[classes] + 1.0 * draw.standard_normal((count, 3, 32, 32))
    return {"pixel_values": pictures.astype(np.float32)}, classes


def vision_transformer(blocks: int = 3, width: int = 64) -> Model:
    """Return a classifier of `patterns`: LayerNormalization, attention, Gelu by Erf, opset 17."""
    graph = Export(seed=11)
    patches = graph.at("/embeddings").conv(
        "pixel_values", 3, width, 8, 8, norm=False, pads=[0, 0, 0, 0]
    )
    x = graph.node("Reshape", patches, graph.number([0, width, -1]))
    x = graph.node("Transpose", x, perm=[0, 2, 1])
    size = graph.node("Slice", graph.node("Shape", x), graph.number([0]), graph.number([1]))
    shape = graph.node("Concat", size, graph.number([1, width]), axis=0)
    token = graph.weight("embeddings.cls_token", 1, 1, width, scale=0.5)
    x = graph.node("Concat", graph.node("Expand", token, shape), x, axis=1)
    x = graph.node("Add", x, graph.weight("embeddings.position", 1, 17, width, scale=0.5))
    for index in range(blocks):
        x = graph.at(f"/layer.{index}").block(x, width, 4)
    x = graph.at("/head").node("Gather", graph.norm(x, width), graph.number(0), axis=1)
    logits = graph.dense(x, width, 10)
    model = graph.export(
        "vision_transformer",
        {"pixel_values": (TensorProto.FLOAT, ["batch", 3, 32, 32])},
        {"logits": (logits, ["batch", 10])},
    )
    inputs, classes = patterns(400, seed=1)
    fit(model, _last(model, "MatMul"), inputs, 10 * np.eye(10)[classes])
    return model


# A sentence transformer.


def sentences(count: int = 96, seed: int = 0, length: int = 16) -> tuple[Arrays, np.ndarray]:
    """Return token ids of sentences with masks and padding, and the topic of each."""
    draw = np.random.default_rng(seed)
    topics = np.arange(count) % TOPICS
    ids = topics[:, None] * WORDS + 1 + draw.integers(0, WORDS, (count, length))
    anywhere = draw.random((count, length)) < 0.3
    ids = np.where(anywhere, draw.integers(1, VOCABULARY, (count, length)), ids)
    mask = np.arange(length) < draw.integers(length // 3, length + 1, (count, 1))
    inputs = {
        "input_ids": np.where(mask, ids, 0),
        "attention_mask": mask,
        "token_type_ids": np.zeros((count, length)),
    }
    return {name: np.asarray(each, np.int64) for name, each in inputs.items()}, topics


def sentence_transformer(blocks: int = 2, width: int = 96) -> Model:
    """Return a MiniLM: token, place and type tables, masks, mean pooling and L2 norm.

    Words of one topic have similar embeddings. Most of its bytes are in the table of tokens.
    """
    graph = Export(seed=12).at("/embeddings")
    rare = 8 * VOCABULARY
    table = graph.noise(VOCABULARY + rare, width, scale=0.6)
    table[1:VOCABULARY] += graph.noise(TOPICS, width, scale=0.6).repeat(WORDS, 0)
    graph.weights.append(numpy_helper.from_array(table, "embeddings.word_embeddings.weight"))
    place = graph.weight("embeddings.position_embeddings.weight", 64, width, scale=0.2)
    kind = graph.weight("embeddings.token_type_embeddings.weight", 2, width, scale=0.2)
    x = graph.node("Gather", "embeddings.word_embeddings.weight", "input_ids")
    x = graph.node("Add", x, graph.node("Gather", kind, "token_type_ids"))
    length = graph.node("Gather", graph.node("Shape", "input_ids"), graph.number(1))
    places = graph.node("Range", graph.number(0), length, graph.number(1))
    x = graph.norm(graph.node("Add", x, graph.node("Gather", place, places)), width)
    kept = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.node("Sub", graph.real(1), graph.node("Unsqueeze", kept, graph.number([1, 2])))
    mask = graph.node("Mul", hidden, graph.real(float(np.finfo(np.float32).min)))
    for index in range(blocks):
        x = graph.at(f"/encoder/layer.{index}").block(x, width, 4, mask)
    weights = graph.at("/pooling").node("Unsqueeze", kept, graph.number([-1]))
    total = graph.node("ReduceSum", graph.node("Mul", x, weights), graph.number([1]), keepdims=0)
    count = graph.node("ReduceSum", weights, graph.number([1]), keepdims=0)
    pooled = graph.node("Div", total, graph.node("Clip", count, graph.real(1e-9)))
    length = graph.at("/normalize").node("ReduceL2", pooled, axes=[1], keepdims=1)
    shape = ["batch", "sequence"]
    return graph.export(
        "sentence_transformer",
        {
            name: (TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        },
        {
            "sentence_embedding": (
                graph.node("Div", pooled, graph.node("Clip", length, graph.real(1e-12))),
                ["batch", width],
            )
        },
    )


# A decoder.


def prompts(count: int = 64, seed: int = 0, past: int = 0, length: int = 12) -> Arrays:
    """Return token ids, and keys and values of so many earlier tokens: none at the start."""
    draw = np.random.default_rng(seed)
    kept = {
        f"past_key_values.{block}.{kind}": draw.standard_normal((count, 4, past, 16))
        for block in range(2)
        for kind in ("key", "value")
    }
    return {
        "input_ids": draw.integers(1, VOCABULARY, (count, length)),
        **{name: each.astype(np.float32) for name, each in kept.items()},
    }


def decoder(blocks: int = 2, width: int = 64, heads: int = 4) -> Model:
    """Return a GPT whose past keys and values are inputs, and the present ones outputs."""
    graph = Export(seed=13).at("/transformer")
    table = graph.weight("transformer.wte.weight", VOCABULARY, width, scale=1.0)
    place = graph.weight("transformer.wpe.weight", 128, width, scale=0.3)
    length = graph.node("Gather", graph.node("Shape", "input_ids"), graph.number(1))
    past = graph.node("Gather", graph.node("Shape", "past_key_values.0.key"), graph.number(2))
    total = graph.node("Add", past, length)
    places = graph.node("Range", past, total, graph.number(1))
    x = graph.node("Gather", table, "input_ids")
    x = graph.node("Add", x, graph.node("Gather", place, places))
    later = graph.node("Range", graph.number(0), total, graph.number(1))
    ahead = graph.node("Greater", later, graph.node("Unsqueeze", places, graph.number([1])))
    mask = graph.node("Where", ahead, graph.real(-1e9), graph.real(0))
    presents: dict[str, tuple[str, Dims]] = {}
    for index in range(blocks):
        graph.at(f"/transformer/h.{index}")
        normal = graph.norm(x, width)
        queries, *kept = (graph.dense(normal, width, width, gain=1.5) for _ in range(3))
        queries = graph.node("Mul", graph.heads(queries, heads, width), graph.real(0.25))
        joined = []
        for kind, each in zip(("key", "value"), kept, strict=True):
            before = f"past_key_values.{index}.{kind}"
            joined.append(graph.node("Concat", before, graph.heads(each, heads, width), axis=2))
            shape = ["batch", heads, "total", width // heads]
            presents[f"present.{index}.{kind}"] = joined[-1], shape
        keys = graph.node("Transpose", joined[0], perm=[0, 1, 3, 2])
        mixed = graph.dense(graph.attend(queries, keys, joined[1], width, mask), width, width)
        x = graph.node("Add", x, mixed)
        inner = graph.gelu(graph.dense(graph.norm(x, width), width, 4 * width))
        x = graph.node("Add", x, graph.dense(inner, 4 * width, width))
    x = graph.at("/lm_head").norm(x, width)
    # The head is the table of tokens again, transposed by the exporter.
    turned = numpy_helper.to_array(graph.weights[0]).T.copy()
    graph.weights.append(numpy_helper.from_array(turned, "onnx::MatMul_999"))
    shape = ["batch", heads, "past", width // heads]
    return graph.export(
        "decoder",
        {
            "input_ids": (TensorProto.INT64, ["batch", "sequence"]),
            **{
                name.replace("present", "past_key_values"): (TensorProto.FLOAT, shape)
                for name in presents
            },
        },
        {
            "logits": (
                graph.node("MatMul", x, "onnx::MatMul_999"),
                ["batch", "sequence", VOCABULARY],
            ),
            **presents,
        },
    )


# A segmenter and a detector.


def shapes(
    count: int = 48, seed: int = 0, pixels: int = 64
) -> tuple[Arrays, np.ndarray, np.ndarray]:
    """Return noisy pictures of squares and discs, the class of each pixel, and their boxes.

    A box is in the cell of 8 x 8 pixels where its centre is: [count, cells, 4 sides + 2 classes].
    """
    draw = np.random.default_rng(seed)
    pictures = 0.15 * draw.standard_normal((count, 3, pixels, pixels)).astype(np.float32)
    classes = np.zeros((count, pixels, pixels), np.int64)
    cells = pixels // 8
    found = np.zeros((count, cells * cells, 6), np.float32)
    y, x = np.mgrid[:pixels, :pixels]
    for index in range(count):
        for kind in draw.permutation([1, 1, 2, 2])[:3].tolist():
            half = int(draw.integers(5, 10))
            top, left = draw.integers(half, pixels - half, 2).tolist()
            far = [np.abs(y - top), np.abs(x - left)]
            inside = np.maximum(*far) <= half if kind == 1 else np.hypot(*far) <= half
            colour = np.array([[0.2, 1.0, -0.5], [0.6, -0.5, 1.0]][kind - 1])
            pictures[index][:, inside] += colour[:, None].astype(np.float32) + 0.5
            classes[index][inside] = kind
            place = top // 8 * cells + left // 8
            found[index, place] = [left, top, 2 * half, 2 * half, kind == 1, kind == 2]
    return {"image": pictures}, classes, found


def unet(width: int = 16) -> Model:
    """Return a segmenter of `shapes` into three classes: skips, a ConvTranspose, a Resize."""
    graph = Export(seed=14)

    def double(given: str, inputs: int, outputs: int) -> str:
        for before in (inputs, outputs):
            given = graph.node("Relu", graph.conv(given, before, outputs, 3))
        return given

    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    first = double("image", 3, width)
    second = double(graph.at("/down1").node("MaxPool", first, **pool), width, 2 * width)
    x = double(graph.at("/down2").node("MaxPool", second, **pool), 2 * width, 4 * width)
    up = graph.at("/up1").weight(
        "up1.weight", 4 * width, 2 * width, 2, 2, scale=math.sqrt(1 / (2 * width))
    )
    x = graph.node("ConvTranspose", x, up, kernel_shape=[2, 2], strides=[2, 2])
    x = double(graph.node("Concat", x, second, axis=1), 4 * width, 2 * width)
    scales = graph.number([1, 1, 2, 2], np.float32)
    x = graph.at("/up2").node("Resize", x, "", scales, mode="nearest")
    x = double(graph.node("Concat", x, first, axis=1), 3 * width, 3 * width)
    logits = graph.at("/head").conv(x, 3 * width, 3, 1, norm=False)
    shape = ["batch", 3, 64, 64]
    model = graph.export("unet", {"image": (TensorProto.FLOAT, shape)}, {"logits": (logits, shape)})
    inputs, classes, _ = shapes(24, seed=1)
    fit(model, _last(model, "Conv"), inputs, 8 * np.eye(3)[classes].transpose(0, 3, 1, 2), axis=1)
    return model


def detector(width: int = 24) -> Model:
    """Return a detector of `shapes` with two outputs: `boxes` in pixels, `scores` of two classes.

    Boxes are [left, top, right, bottom], one for each of 64 cells.
    """
    graph = Export(seed=15).at("/backbone")
    x, before = "image", 3
    for outputs in (width, 2 * width, 4 * width):
        x = graph.node("Relu", graph.conv(x, before, outputs, 3, 2))
        x = graph.node("Relu", graph.conv(x, outputs, outputs, 3))
        before = outputs
    made = {}
    for name, outputs in (("boxes", 4), ("scores", 2)):
        raw = graph.at(f"/{name}").conv(x, before, outputs, 1, norm=False)
        raw = graph.node("Reshape", raw, graph.number([0, outputs, -1]))
        made[name] = graph.node("Transpose", raw, perm=[0, 2, 1])
    parts = graph.at("/decode").node("Split", made["boxes"], outputs=2, axis=2)
    cells = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, 64, 2) * 8.0 + 4
    centre = graph.node("Add", parts, graph.constant(cells.astype(np.float32)))
    half = graph.node("Mul", f"{parts[:-1]}1", graph.real(0.5))
    corners = graph.node("Sub", centre, half), graph.node("Add", centre, half)
    model = graph.export(
        "detector",
        {"image": (TensorProto.FLOAT, ["batch", 3, 64, 64])},
        {
            "boxes": (graph.node("Concat", *corners, axis=2), ["batch", 64, 4]),
            "scores": (graph.node("Sigmoid", made["scores"]), ["batch", 64, 2]),
        },
    )
    inputs, _, found = shapes(200, seed=1)
    *_, boxes, scores = (each.name for each in model.proto.graph.node if each.op_type == "Conv")
    there = found[..., 4:].any(-1, keepdims=True)
    wanted = np.where(there, np.where(found[..., 4:] > 0, 4.0, -4.0), -4.1)
    fit(model, scores, inputs, _cells(wanted), axis=1)
    offsets = np.concatenate([found[..., :2] - cells, found[..., 2:4]], axis=-1)
    fit(model, boxes, inputs, _cells(np.where(there, offsets, [0, 0, 14, 14])), axis=1)
    return model


def _cells(rows: np.ndarray) -> np.ndarray:
    """Return values by cell as a map of 8 x 8."""
    return rows.transpose(0, 2, 1).reshape(len(rows), -1, 8, 8)


# A recurrent network.


def series(count: int = 64, seed: int = 0, length: int = 20) -> tuple[Arrays, np.ndarray]:
    """Return sums of sines with noise in 16 channels, without a state, and their frequencies."""
    draw = np.random.default_rng(seed)
    speeds = draw.uniform(0.05, 0.6, count)
    phases = np.linspace(0, np.pi, 16)
    waves = np.sin(speeds[:, None, None] * np.arange(length)[:, None] + phases)
    waves = waves + 0.2 * draw.standard_normal(waves.shape)
    return {"x": waves.astype(np.float32)}, speeds


def states(count: int, width: int = 48) -> Arrays:
    """Return the states of so many samples at the start, as the graph takes them: zeros."""
    return {name: np.zeros((1, count, width), np.float32) for name in ("h0", "c0")}


def recurrent(width: int = 48) -> Model:
    """Return a dense layer, an LSTM with its state as inputs and outputs, and a dense layer.

    It says how fast the waves of `series` are at each step. The batch is the states' second axis.
    """
    graph = Export(seed=16)
    x = graph.at("/before").node("Tanh", graph.dense("x", 16, width))
    x = graph.node("Transpose", x, perm=[1, 0, 2])
    parts = [
        graph.at("/lstm").weight("onnx::LSTM_201", 1, 4 * width, width, scale=0.14),
        graph.weight("onnx::LSTM_202", 1, 4 * width, width, scale=0.14),
        graph.weight("onnx::LSTM_203", 1, 8 * width, scale=0.1),
    ]
    x = graph.node("LSTM", x, *parts, "", "h0", "c0", outputs=3, hidden_size=width)
    hn, cn = f"{x[:-1]}1", f"{x[:-1]}2"
    x = graph.node("Transpose", graph.node("Squeeze", x, graph.number([1])), perm=[1, 0, 2])
    speed = graph.at("/after").dense(x, width, 1)
    state = [1, "batch", width]
    model = graph.export(
        "recurrent",
        {
            "x": (TensorProto.FLOAT, ["batch", "steps", 16]),
            "h0": (TensorProto.FLOAT, state),
            "c0": (TensorProto.FLOAT, state),
        },
        {"speed": (speed, ["batch", "steps", 1]), "hn": (hn, state), "cn": (cn, state)},
    )
    inputs, speeds = series(200, seed=1)
    wanted = np.broadcast_to(speeds[:, None, None], (200, 20, 1))
    fit(model, _last(model, "MatMul"), {**inputs, **states(200)}, wanted)
    return model


def _last(model: Model, operation: str) -> str:
    """Return the name of the last node of this operation."""
    nodes: Sequence[onnx.NodeProto] = model.proto.graph.node
    return [each.name for each in nodes if each.op_type == operation][-1]
