"""Published models on the command line: fetched first, each on its own, in words where not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from commands import Command
from hub_server import FILE, REPO, Hub, look_at, served
from hydra import compose, initialize_config_dir

from seqto.config.paths import CONF
from seqto.models.embedded import EmbeddedModel
from seqto.models.hub import HubModel

SHORT = [
    "search=ladder",
    "search.maximum=1",
    "sensitivity=paper",
    "sensitivity.samples=2",
    "dataset.calibration_size=5",
    "dataset.evaluation_size=20",
    "device.repeats=1",
    "study.register_models=false",
]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve the embedded model where the client looks."""
    with served(EmbeddedModel().load().to_bytes()) as hub:
        look_at(hub.endpoint, monkeypatch)
        yield hub


def published(hub: Hub, files: str = FILE) -> list[str]:
    """Return the overrides that ask for these files."""
    address = [f"model.repo={REPO}", f"model.file={files}", f"model.sha256={hub.sha256}"]
    return ["model=hub", *address, *SHORT]


def test_one_model_that_fails_does_not_stop_the_others(
    hub: Hub, seqto: Command, tmp_path: Path
) -> None:
    result = seqto(*published(hub, f"none.onnx,{FILE}"), "-m")
    assert result.code == 1
    first, *pin, last = result.err.strip().splitlines()
    assert all("model.sha256=" in line for line in pin)
    assert "has no none.onnx in owner/zoo" in first
    assert last == "seqto: error: 1 of 2 studies failed; see above."
    assert "small on cpu, static quantization" in result.out
    assert len(hub.ranges) == 1
    (report,) = tmp_path.glob("multirun/*/*/study-1/report.json")
    assert len(json.loads(report.read_text())["candidates"]) == 2


def test_a_model_that_cannot_be_had_is_asked_for_once(hub: Hub, seqto: Command) -> None:
    result = seqto(*published(hub, "none.onnx"), "quantization=static,dynamic", "-m")
    assert result.code == 1 and "2 of 2 studies failed" in result.err
    assert hub.heads == 1


def test_offline_mode_is_the_clients(hub: Hub, tmp_path: Path) -> None:
    settings = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.endpoint, "SEQTO_CACHE": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-m", "seqto", *published(hub), "-m"],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 1 and hub.heads == 0
    (line,) = result.stderr.strip().splitlines()
    assert "offline mode is on" in line and "small.onnx" in line and "model=local" in line


def test_without_images_one_line_says_which(
    seqto: Command, hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(cache))
    model = HubModel(repo="onnxmodelzoo/legacy_models", file="resnet50.onnx")
    model.path.parent.mkdir(parents=True, exist_ok=True)
    model.path.write_bytes(hub.content)
    result = seqto("model=resnet50", "model.file=resnet50.onnx", f"model.sha256={hub.sha256}", "-m")
    assert result.code == 1 and hub.heads == 0
    (line,) = result.err.strip().splitlines()
    assert line == (
        "seqto: error: dataset.path is not given: resnet50 needs a folder of ImageNet validation "
        "images, add dataset.path=<folder>."
    )


@pytest.mark.parametrize("name", ["mobilenetv2", "shufflenetv2", "efficientnet_lite4", "resnet50"])
def test_the_papers_models_bring_their_preprocessing(name: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [f"model={name}"])
        other = compose("config", [f"model={name}", "dataset=digits", "preprocess.resize=300"])
        chosen = compose("config", [f"model={name}", "preprocess=efficientnet_lite"])
    assert config.dataset._target_.endswith("ImageFolder")
    lite = name == "efficientnet_lite4"
    assert config.preprocess.mean[0] == (127.0 if lite else 0.485)
    assert config.preprocess.layout == ("NHWC" if lite else "auto")
    assert other.dataset._target_.endswith("DigitsDataset") and other.preprocess.resize == 300
    assert chosen.preprocess.interpolation == "bicubic"


def test_a_path_for_embedded_data_is_refused(seqto: Command) -> None:
    result = seqto("dataset.path=photos", "-m")
    assert result.code == 1 and "dataset=digits is embedded" in result.err
    result = seqto("dataset.labels=a.csv", "-m")
    assert "dataset.labels belongs to dataset=images or dataset=npz" in result.err
    assert "++dataset.labels" in result.err


def test_a_registered_model_is_quantized(seqto: Command, tmp_path: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run():
        mlflow.onnx.log_model(
            EmbeddedModel().load().proto,
            name="classifier",
            registered_model_name="mine",
            pip_requirements=["onnx"],
            save_as_external_data=False,
        )
    mlflow.set_tracking_uri(None)
    result = seqto("model=registry", "model.uri=models:/mine/1", *SHORT)
    assert result.code == 0, result.err
    assert len(list(tmp_path.glob("outputs/*/*/mine-static-*.onnx"))) == 1
