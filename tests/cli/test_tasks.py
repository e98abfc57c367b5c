"""Studies of real models for each task: plain ONNX Runtime finds the losses that they report."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from commands import Command, Result
from mlflow.tracking import MlflowClient
from mlflow_inspector import MlflowInspector, artifact
from plain_losses import (
    Answers,
    angles,
    decisions,
    masks,
    one_mask,
    quantities,
    scored_boxes,
    signals,
    texts,
    tokens,
    top_classes,
    top_five,
    yolo_boxes,
)
from task_models import CASES, Case

SHORT = [
    "search.budgets=3",
    "search.screens=4",
    "search.evaluations=3",
    "sensitivity=local",
    "sensitivity.samples=4",
    "device.repeats=2",
    "study.register_models=false",
]
DYNAMIC = "quantization=dynamic"
PLAIN = "quantization.unweighted=int8"
"""As ONNX Runtime quantizes by itself: also what follows the last layers, which loses boxes."""
INT4 = ["precisions=[int4,float32]", "sensitivity=divergence", "sensitivity.samples=2"]

Inputs = Mapping[str, np.ndarray]


def dimmed(contrast: float, noise: float, inputs: Inputs) -> Inputs:
    """Return pictures on which things are hard to see."""
    draw = np.random.default_rng(1)
    return {
        name: (contrast * each + noise * draw.standard_normal(each.shape)).astype(each.dtype)
        for name, each in inputs.items()
    }


@dataclass(frozen=True)
class Study:
    """How a model is studied here, and how its losses are computed by hand."""

    name: str
    line: str
    """What the terminal says of the task."""
    losses: Callable[[Answers, Answers], list[float]]
    outputs: Sequence[str]
    """Those that are compared."""
    words: Sequence[str] = ()
    evaluated: int = 16
    harder: Callable[[Inputs], Inputs] = dict
    """What is done to samples with which quantization would lose nothing."""
    guessed: bool = False
    """Whether the task is not told."""

    @property
    def case(self) -> Case:
        (found,) = (each for each in CASES if each.name == self.name)
        return replace(found, inputs=lambda count: self.harder(found.inputs(count)))

    @property
    def count(self) -> int:
        return CALIBRATED + self.evaluated


CALIBRATED = 8

STUDIES = (
    Study(
        "magika",
        "task=classification, loss by topk: rows sum to 1 (another one: task=...)",
        top_five,
        ["target_label"],
        # Its first class is hardly ever lost, and the next ones are so faint that the rounding of a
        # batch of samples decides on them.
        [*INT4, "metric=topk", "metric.k=5", "dataset.chunk_size=1"],
        guessed=True,
    ),
    Study(
        "nudenet",
        "task=detection, loss by box_f1",
        yolo_boxes,
        ["output0"],
        [PLAIN],
        evaluated=8,
        harder=partial(dimmed, 1.0, 0.05),
    ),
    Study(
        "ocr_cls",
        "task=classification, loss by top1",
        top_classes,
        ["save_infer_model/scale_0.tmp_1"],
        INT4,
        harder=partial(dimmed, 0.5, 0.3),
    ),
    Study(
        "ocr_det", "task=segmentation, loss by mask_iou", one_mask, ["sigmoid_0.tmp_0"], evaluated=8
    ),
    Study("ocr_rec", "task=text, loss by cer", texts, ["softmax_11.tmp_0"], evaluated=8),
    Study("silero_16k", "task=binary, loss by flips", decisions, ["output"], [DYNAMIC]),
    Study("silero_flat", "task=binary, loss by flips", decisions, ["output"], [DYNAMIC]),
    Study(
        "basic_pitch",
        "task=audio, loss by noise",
        signals,
        ["StatefulPartitionedCall:0", "StatefulPartitionedCall:1", "StatefulPartitionedCall:2"],
        evaluated=6,
    ),
    Study("vision_transformer", "task=classification, loss by top1", top_classes, ["logits"]),
    Study(
        "sentence_transformer",
        "task=embedding, loss by cosine: rows have a length of 1 (another one: task=...)",
        angles,
        ["sentence_embedding"],
        [DYNAMIC],
        guessed=True,
    ),
    Study(
        "decoder",
        "task=tokens, loss by tokens: the output is called 'logits' and the model takes texts "
        "(another one: task=...)",
        tokens,
        ["logits"],
        [DYNAMIC],
        guessed=True,
    ),
    Study("unet", "task=segmentation, loss by mask_iou", masks, ["logits"]),
    Study("detector", "task=detection, loss by box_f1", scored_boxes, ["boxes", "scores"]),
    Study("recurrent", "task=regression, loss by noise", quantities, ["speed"], [DYNAMIC]),
)


def command(case: Case, inputs: Inputs, folder: Path, *words: str) -> list[str]:
    """Write model and samples into a folder, and return the command line that studies them."""
    model, samples = folder / f"{case.name}.onnx", folder / f"{case.name}.npz"
    model.write_bytes(case.model().to_bytes())
    np.savez(samples, **inputs)
    return [
        *("model=local", f"model.path={model}", "dataset=npz", f"dataset.path={samples}"),
        *(f"dataset.calibration_size={CALIBRATED}", *SHORT, *words, "-m"),
    ]


def with_a_copy(inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the samples with the first one once more, which is to be left out.

    States that are empty at the start are no samples: seqto knows how they start.
    """
    return {
        name: np.concatenate([each, each[:1]]) for name, each in inputs.items() if each.size > 0
    }


def drawn(inputs: Inputs, count: int) -> list[int]:
    """Return the samples of a study in their order, drawn as its seed 0 says."""
    total = len(next(iter(inputs.values())))
    order: dict[bytes, int] = {}
    for at in np.random.RandomState(0).permutation(total).tolist():
        order.setdefault(b"".join(each[at].tobytes() for each in inputs.values()), at)
    return list(order.values())[:count]


def answers(
    model: bytes, session: Mapping[str, str], feeds: Answers, outputs: Sequence[str]
) -> Answers:
    """Return the outputs of a model in plain ONNX Runtime, sample by sample."""
    options = onnxruntime.SessionOptions()
    for name, value in session.items():
        options.add_session_config_entry(name, value)
    running = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    # Constants are no inputs of seqto's models any more.
    wanted = [each.name for each in running.get_inputs()]
    return [
        dict(zip(outputs, running.run(outputs, {name: feed[name] for name in wanted}), strict=True))
        for feed in feeds
    ]


def report_of(result: Result, folder: Path) -> dict[str, Any]:
    assert result.code == 0, result.err
    (path,) = folder.glob("multirun/*/*/report.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_plain_onnxruntime_finds_the_same_losses(
    study: Study, seqto: Command, tmp_path: Path
) -> None:
    case, inputs = study.case, with_a_copy(study.case.inputs(study.count))
    told = case.words[1:] if study.guessed else case.words
    size = f"dataset.evaluation_size={study.evaluated}"
    result = seqto(*command(case, inputs, tmp_path, *told, *study.words, size))
    front = [each for each in report_of(result, tmp_path)["candidates"] if each["pareto"]]
    assert study.line in result.out.splitlines()

    feeds = case.feeds(study.count)
    # Behind the last sample there is the first one again.
    evaluated = [feeds[at % study.count] for at in drawn(inputs, study.count)[CALIBRATED:]]
    wanted = answers(case.model().to_bytes(), {}, evaluated, study.outputs)
    store = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    for each in front:
        (model,) = MlflowInspector(store).models(each["run_id"])
        found = answers(model, each["session"], evaluated, study.outputs)
        losses = np.array(study.losses(wanted, found))
        kept = np.array(json.loads(artifact(store, each["run_id"], "losses.json"))["accuracy_loss"])
        sure = ~np.isnan(losses)
        assert sure.mean() > 0.5
        np.testing.assert_allclose(kept[sure], losses[sure], rtol=0, atol=1e-6)
        assert each["metrics"]["accuracy_loss"] == pytest.approx(kept.mean(), abs=1e-6)
    assert max(each["metrics"]["accuracy_loss"] for each in front) > 1e-4, "nothing to recompute"


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        ("nudenet", "'output0' has the shape [22, 2100] per sample", "task=detection"),
        ("silero_flat", "'output' has the shape [1] per sample", "task=binary"),
        ("basic_pitch", "the model has 3 outputs", "task=regression"),
    ],
)
def test_without_a_task_what_is_unclear_is_refused_before_anything_is_computed(
    seqto: Command, tmp_path: Path, name: str, reason: str, remedy: str
) -> None:
    (case,) = (each for each in CASES if each.name == name)
    inputs = case.inputs(2 * CALIBRATED)
    result = seqto(*command(case, inputs, tmp_path, f"dataset.evaluation_size={CALIBRATED}"))
    assert result.code == 1 and not list(tmp_path.glob("multirun/*/*/report.json"))
    (line,) = result.err.strip().splitlines()
    assert line.startswith("seqto: error: ") and "unexpected" not in line
    assert reason in line and remedy in line
