"""scripts/reproduce_paper, end to end with generated models."""

import csv
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from zoo_models import mobilenetv2

from seqto.config.paths import CONF
from seqto.models.hub import HubModel
from seqto.workspace import Workspace

SCRIPT = Path(__file__).parent.parent / "scripts" / "paper" / "reproduce.py"
SMALL = [
    "++model.sha256=null",
    "preprocess.crop=32",
    "preprocess.resize=32",
    "dataset.calibration_size=2",
    "dataset.evaluation_size=6",
    "search.maximum=1",
    "sensitivity.samples=1",
    "device.repeats=1",
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("reproduce", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduce"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of noise."""
    folder = tmp_path / "photos, of ImageNet"
    folder.mkdir()
    for index in range(8):
        pixels = np.random.RandomState(index).randint(0, 256, (32, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def put_in_place(cache: Path, name: str, content: bytes) -> None:
    """Put a model where its config says that it may be put by hand."""
    import yaml

    config = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())
    source = HubModel(repo=config["repo"], file=config["file"], workspace=Workspace(cache))
    source.path.parent.mkdir(parents=True, exist_ok=True)
    source.path.write_bytes(content)


@pytest.mark.slow
def test_tables_are_made_and_go_on_where_they_stopped(
    tmp_path: Path, photos: Path, migrated_store: Path
) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    out.mkdir()
    shutil.copy(migrated_store, out / "mlflow.db")
    put_in_place(cache, "mobilenetv2", mobilenetv2().to_bytes())
    settings = {"SEQTO_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    environment = {key: value for key, value in os.environ.items() if "MLFLOW" not in key}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, SCRIPT, photos, *options, "--out", out, "--", *SMALL],
            env=environment | settings,
            capture_output=True,
            text=True,
            timeout=300,
        )

    first = run("--models", "shufflenetv2,mobilenetv2", "--quantizations", "static")
    assert first.returncode == 1
    assert "shufflenet-v2-10.onnx cannot be fetched" in first.stderr
    assert first.stderr.strip().endswith("no figures of shufflenetv2 CPU static; see above.")
    assert len(figures(out)) == 16 + 2
    second = run("--models", "mobilenetv2")
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("2 of 2 candidates were measured before") == 1
    rows = figures(out)
    assert len(rows) == 16 + 2 * 2
    for row in (row for row in rows if row["source"] == "here"):
        paper = next(
            other
            for other in rows
            if other["source"] == "paper"
            and all(other[key] == row[key] for key in ("model", "device", "quantization"))
        )
        assert float(row["original_mb"]) == pytest.approx(float(paper["original_mb"]), rel=0.003)
        assert float(row["full_mb"]) == pytest.approx(float(paper["full_mb"]), rel=0.05)
        assert 0 < float(row["full_dissimilarity_pct"]) <= 100
    lines = (out / "tables.md").read_text().splitlines()
    assert "| MobileNetV2 | static | paper | 45.28 | 34.10 | 24.69 |" in lines
    assert "| MobileNetV2 | static | paper | 13.32 | 3.43 | 7.34 | 60.47 |" in lines
    assert sum(line.startswith("| MobileNetV2 | dynamic | here") for line in lines) == 3


def figures(out: Path) -> list[dict[str, str]]:
    """Return the rows of the CSV."""
    with (out / "tables.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_papers_percentages_follow_from_its_figures(script: ModuleType) -> None:
    with script.PAPER.open(newline="") as file:
        printed = list(csv.DictReader(file))
    assert len(printed) == 16
    for figures, row in zip(script.read_paper(script.PAPER), printed, strict=True):
        for name in ("dissimilarity_reduction_pct", "size_reduction_preserved_pct"):
            assert getattr(figures, name) == pytest.approx(float(row[name]), abs=0.2)


def test_gpu_columns_come_with_a_device(script: ModuleType, tmp_path: Path) -> None:
    plan = script.parse([str(tmp_path), "--device", "mali", "--out", str(tmp_path)])
    script.write_tables(plan, script.read_paper(script.PAPER))
    text = (tmp_path / "tables.md").read_text()
    assert "| CPU full | CPU selected | CPU reduction | GPU full |" in text
    line = "| ResNet50 | static | paper | 37.20 | 27.86 | 25.11 | 28.94 | 17.69 | 38.87 |"
    assert line in text.splitlines()
    assert plan.study("GPU", "static")[0] == "device=mali"


@pytest.mark.parametrize(
    "arguments", [["none"], [".", "--models", "vgg"], [".", "--quantizations", "static,int3"]]
)
def test_bad_arguments_are_named(
    script: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.parse(arguments)
    assert arguments[-1].rpartition(",")[2] in capsys.readouterr().err
