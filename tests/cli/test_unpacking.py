"""Candidates that are saved with unpacked weights, too."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import Command, Result
from mlflow.tracking import MlflowClient

from seqto.datasets.digits import DigitsDataset
from seqto.graph.load import input_specs
from seqto.models.embedded import EmbeddedModel
from seqto.quantizers.weight_only import WeightOnlyQuantizer

CODED = next(each for each in WeightOnlyQuantizer().precisions if each.startswith("coded"))
ONE = [
    "quantization=weight_only",
    f"candidate.precisions={{{CODED}:[/dense/Gemm],float16:[/stem/Conv]}}",
    "device.repeats=3",
]


def told(result: Result, label: str) -> str:
    (line,) = (each for each in result.out.splitlines() if each.startswith(f"{label}:"))
    return line.partition(":")[2].strip()


def outputs(path: Path) -> np.ndarray:
    samples = DigitsDataset().load(input_specs(EmbeddedModel().load())).evaluation
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(samples.inputs))[0])


def test_a_candidate_is_saved_unpacked_beside_the_one_that_was_measured(
    seqto: Command, tmp_path: Path
) -> None:
    result = seqto(*ONE, "candidate.unpack=true")
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1].startswith("model:")
    stored, plain = (tmp_path / told(result, each) for each in ("model", "unpacked"))
    assert stored.parent == plain.parent and plain.name == f"{stored.stem}-unpacked.onnx"
    np.testing.assert_array_equal(outputs(plain), outputs(stored))
    model = onnx.load(plain)
    assert not model.functions
    assert not {"Cast", "Gather"} & {node.op_type for node in model.graph.node}
    run = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").get_run(
        told(result, "open").partition("/runs/")[2].partition("?")[0]
    )
    assert run.data.metrics["size_bytes"] == stored.stat().st_size < plain.stat().st_size


def test_the_candidate_of_a_run_is_unpacked(seqto: Command, tmp_path: Path) -> None:
    first = seqto(*ONE)
    assert first.code == 0, first.err
    assert "unpacked" not in first.out
    assert len([*(tmp_path / told(first, "model")).parent.glob("*.onnx")]) == 1
    run = told(first, "open").partition("/runs/")[2].partition("?")[0]
    again = seqto(ONE[0], f"candidate.from_run={run}", "candidate.unpack=true", "device.repeats=3")
    assert again.code == 0, again.err
    np.testing.assert_array_equal(
        outputs(tmp_path / told(again, "unpacked")), outputs(tmp_path / told(first, "model"))
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["candidate.unpack=maybe"], "candidate.unpack=maybe has to be true or false"),
        (["candidate.unpack=1"], "candidate.unpack=1 has to be true or false"),
        (["candidate.unpack=true", "-m"], "candidate.unpack saves one candidate, but -m runs"),
    ],
)
def test_what_cannot_be_is_told(seqto: Command, words: list[str], says: str) -> None:
    result = seqto(*words)
    assert result.code == 1
    (line,) = result.err.strip().splitlines()
    assert says in line
