"""The examples in the tasks' README run as they are written."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import Command
from onnx import helper, numpy_helper
from onnx_models import build
from PIL import Image

from seqto.graph.files import save_model
from seqto.types import Model

README = (Path(__file__).parent.parent / "seqto" / "tasks" / "README.md").read_text()
SMALL = ("search=ladder", "search.maximum=1", "sensitivity=local", "sensitivity.samples=4")


def block(start: str) -> str:
    """Return the code block that starts with this line."""
    (found,) = re.findall(rf"```\w+\n({re.escape(start)}\n.*?)```", README, re.DOTALL)
    return str(found)


def command(part: str) -> list[str]:
    """Return the words of the command that has this part, without the program and `-m`."""
    (line,) = (line for line in README.splitlines() if line.startswith("seqto ") and part in line)
    return [word for word in line.split()[1:] if word != "-m"]


def head() -> Model:
    """Return a tiny detector: 100 boxes per image, their sizes and eight scores never negative."""
    nodes = [
        helper.make_node("Conv", ["images", "w", "b"], ["cells"], "conv", strides=[32, 32]),
        helper.make_node("Sigmoid", ["cells"], ["shares"], "sigmoid"),
        helper.make_node("Mul", ["shares", "sizes"], ["values"], "scale"),
        helper.make_node("Reshape", ["values", "rows"], ["output0"], "reshape"),
    ]
    sizes = np.array([320, 320, 160, 160, *[1] * 8], np.float32).reshape(1, 12, 1, 1)
    draw = np.random.RandomState(0)
    kernels = (draw.randn(12, 3, 32, 32) / 30).astype(np.float32)
    weights = [
        numpy_helper.from_array(kernels, "w"),
        # Most scores are low, as a detector's are.
        numpy_helper.from_array(np.array([0] * 4 + [-2.5] * 8, np.float32), "b"),
        numpy_helper.from_array(sizes, "sizes"),
        numpy_helper.from_array(np.array([0, 12, 100], np.int64), "rows"),
    ]
    return build(nodes, weights, {"images": ["N", 3, 320, 320]}, {"output0": ["N", 12, 100]})


@pytest.mark.slow
def test_a_metric_of_ones_own(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "mymetrics.py").write_text(block("# mymetrics.py"))
    result = seqto(*command("mymetrics.Worst"), *SMALL, "-m")
    assert result.code == 0, result.err
    assert "worst loss" in result.out


@pytest.mark.slow
def test_samples_of_ones_own(seqto: Command, tmp_path: Path) -> None:
    (tmp_path / "mydata.py").write_text(block("# mydata.py"))
    save_model(head(), tmp_path / "yolo.onnx")
    draw = np.random.RandomState(0)
    rows = []
    for number in range(24):
        name = f"{number}.png"
        Image.fromarray(draw.randint(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / name)
        rows.append({"file": name, "boxes": [[10, 10, 90, 60]], "classes": [number % 2]})
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = seqto(*command("mydata:samples"), *SMALL, "dataset.calibration_size=8", "-m")
    assert result.code == 0, result.err
    assert "task=detection, loss by box_f1" in result.out
    assert "mAP" in result.out
