"""Studies of vision transformers: what they report is what the saved models do."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tiny_studies import Lab
from transformer_models import vit

from seqto.datasets.digits import DigitsDataset
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.tracking.memory import MemoryTracker
from seqto.types import Samples


def classes(model: bytes, samples: Samples) -> np.ndarray:
    """Return the top class of each sample, by plain ONNX Runtime."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    outputs = [session.run(None, {given.name: each[given.name]})[0] for each in samples.batches(1)]
    return np.concatenate(outputs).argmax(axis=1)


@pytest.mark.parametrize("like_bert", [False, True])
def test_losses_are_those_of_the_saved_models(like_bert: bool, tmp_path: Path) -> None:
    model, tracker = vit(like_bert=like_bert), MemoryTracker()
    lab = Lab.at(
        tmp_path,
        model,
        dataset=DigitsDataset(calibration_size=10, evaluation_size=200),
        sensitivity=DivergenceSensitivity(samples=4),
    )
    front = lab.run(tracker).front
    wanted = classes(model.to_bytes(), lab.subject.samples)
    losses = []
    for trial in front.members:
        found = classes(tracker.models[trial.id], lab.subject.samples)
        losses.append(float((found != wanted).mean()))
        assert trial.metrics["accuracy_loss"] == pytest.approx(losses[-1], abs=1e-9)
    assert len(set(losses)) > 1, "or this model is no test"
