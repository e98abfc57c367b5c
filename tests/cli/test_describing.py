"""`seqto my.onnx` says what the model looks like, and what it needs."""

from pathlib import Path

import pytest
from commands import Command
from onnx import TensorProto, helper
from onnx_models import build, weight

from seqto.cli.describing import looks_of
from seqto.config.paths import PACKAGE
from seqto.types import Model

DIGITS = PACKAGE / "models" / "data" / "digits.onnx"


def saved(model: Model, path: Path) -> str:
    path.write_bytes(model.to_bytes())
    return str(path)


def dense(output: str, *, last: str = "Relu", size: int = 4) -> Model:
    """Return a model of one layer and an operation behind it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="dense"),
        helper.make_node(last, ["y"], [output], name="last"),
    ]
    return build(nodes, [weight("w", 6, size)], {"x": ["n", 6]}, {output: ["n", size]})


def tokens() -> Model:
    """Return a model that takes numbers of words."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"], name="words"),
        helper.make_node("MatMul", ["rows", "w"], ["logits"], name="dense"),
    ]
    weights = [weight("table", 100, 8), weight("w", 8, 5)]
    model = build(nodes, weights, {}, {"logits": ["n", "s", 5]})
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "s"])
    model.proto.graph.input.append(ids)
    return model


def test_a_classifier_of_images(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "my model.onnx").write_bytes(DIGITS.read_bytes())
    result = seqto("my model.onnx")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:6] == [
        "model:   my model.onnx, 577.1 KB",
        "inputs:  'image' float32[?, 1, 8, 8]",
        "outputs: 'logits' float32[?, 10]",
        "layers:  24 (23 Conv, 1 Gemm)",
        "         layers hold 94 % of the file",
        "task:    classification, it seems: the output is called 'logits'",
    ]
    assert "           seqto 'my model.onnx' photos/ preprocess=imagenet" in lines
    assert "           numpy.savez('samples.npz', **{'image': ...})" in lines
    assert max(map(len, lines)) <= 80
    assert {each.name for each in tmp_path.iterdir()} == {"my model.onnx", "mlflow.db"}


def test_a_model_of_texts(seqto: Command, tmp_path: Path) -> None:
    saved(tokens(), tmp_path / "words.onnx")
    result = seqto("words.onnx")
    assert (result.code, result.err) == (0, "")
    assert "seqto words.onnx lines.txt dataset.tokenizer=tokenizer.json" in result.out
    (tmp_path / "tokenizer.json").touch()
    assert "dataset.tokenizer" not in seqto("words.onnx").out
    assert "task:    tokens, it seems" in result.out
    assert "photos/" not in result.out


TASKS = {
    "told by its rows": (dense("y2", last="Softmax"), "classification, it seems: rows sum to 1"),
    "unclear": (dense("y2"), "it is not clear what the model's outputs mean"),
    "not finite": (dense("y2", last="Log"), "noise does not tell, samples will"),
}


@pytest.mark.parametrize("case", TASKS)
def test_the_task_is_said_where_it_can_be(tmp_path: Path, case: str) -> None:
    model, words = TASKS[case]
    assert looks_of(saved(model, tmp_path / "my.onnx")).task.startswith(words)


def test_a_file_that_is_no_model(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.onnx").write_text("this is no model")
    result = seqto("notes.onnx")
    assert result.code == 1
    assert result.err.startswith("seqto: error: notes.onnx is no ONNX model")
    assert len(result.err.splitlines()) == 1
