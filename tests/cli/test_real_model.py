"""A local model and a folder of images, from the command line."""

from pathlib import Path

import pytest
from commands import Command
from mlflow.tracking import MlflowClient
from real_data import EFFICIENTNET_LITE0, IMAGENET_SAMPLE, requires_real_data

MODEL = [
    "model=local",
    f"model.path={EFFICIENTNET_LITE0}",
    "dataset=images",
    f"dataset.path={IMAGENET_SAMPLE}",
    "dataset.calibration_size=8",
    "dataset.evaluation_size=24",
    "preprocess=efficientnet_lite",
    "device.repeats=2",
    "sensitivity=local",
    "sensitivity.samples=2",
]


@requires_real_data
@pytest.mark.slow
@pytest.mark.real_model
def test_efficientnet_is_studied_statically_and_dynamically(seqto: Command, tmp_path: Path) -> None:
    result = seqto(*MODEL, "quantization=static,dynamic", "search=ladder", "search.step=25", "-m")
    assert result.code == 0, result.err
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    studies = client.search_runs(["1"], "tags.`seqto.kind` = 'study'")
    assert {run.data.tags["seqto.quantization"] for run in studies} == {"static", "dynamic"}
    for study in studies:
        assert study.data.tags["seqto.model"] == "efficientnet-lite0"
        children = client.search_runs(
            ["1"],
            f"tags.`mlflow.parentRunId` = '{study.info.run_id}'",
            order_by=["tags.`seqto.index`"],
        )
        full, half, last = (child.data.metrics for child in children)
        assert full["size_ratio"] < 0.28 < half["size_ratio"] < last["size_ratio"]
        assert last["accuracy_loss"] == 0 and full["accuracy_loss"] < 0.35
        assert full["accuracy"] > 0.5, "labels come from the CSV"
