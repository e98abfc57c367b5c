"""scripts/reproduce_paper, end to end with generated models."""

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from forked_commands import Forked
from PIL import Image
from real_data import requires_published_results
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


@dataclass(frozen=True)
class Ended:
    """What the script left."""

    code: str
    """What it exits with: nothing if all went well, else why it did not."""
    out: str
    err: str


@pytest.fixture
def run(
    script: ModuleType,
    tmp_path: Path,
    photos: Path,
    migrated_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Ended]:
    """Return the script, with one of the models in place."""
    cache, out = tmp_path / "cache", tmp_path / "out"
    out.mkdir()
    shutil.copy(migrated_store, out / "mlflow.db")
    put_in_place(cache, "mobilenetv2", mobilenetv2().to_bytes())
    for name, value in {"SEQTO_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    for name in [each for each in os.environ if "MLFLOW" in each]:
        monkeypatch.delenv(name)

    def study(command: list[str], cwd: Path, check: bool) -> None:
        assert command[:2] == [sys.executable, "-m"]
        out, err = Forked(command[2:], cwd, os.environ).communicate(timeout=300)
        print(out)
        print(err, file=sys.stderr)

    monkeypatch.setattr(script.subprocess, "run", study)

    def start(*options: str) -> Ended:
        words = [str(photos), *options, "--out", str(out), "--", *SMALL]
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
        code = ""
        try:
            script.main()
        except SystemExit as end:
            code = str(end.code or "")
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return start


@pytest.mark.slow
def test_tables_are_made_and_go_on_where_they_stopped(
    run: Callable[..., Ended], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = run(
        *("--models", "shufflenetv2,mobilenetv2", "--quantizations", "static", "--orders", "text")
    )
    assert first.code.endswith("no figures of shufflenetv2 CPU static text; see above.")
    assert "shufflenet-v2-10.onnx cannot be fetched" in first.err
    assert len(figures(out)) == 16 + 2
    second = run("--models", "mobilenetv2")
    assert second.code == "", second.err
    assert second.out.count("2 of 2 candidates were measured before") == 1
    rows = figures(out)
    assert len(rows) == 16 + 2 * 2 * 2
    for row in (row for row in rows if row["source"] in ("here", "published order")):
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
    named = "| MobileNetV2 | dynamic | published order"
    assert sum(line.startswith(named) for line in lines) == 3
    assert "\n".join(lines) in second.out
    assert first_excluded(out, "text") != first_excluded(out, "published")


def first_excluded(out: Path, order: str) -> str:
    """Return the layer that the second candidate leaves in float."""
    (report,) = (out / "studies" / f"cpu-static-{order}").rglob("report.json")
    (layer,) = json.loads(report.read_text())["candidates"][1]["excluded_layers"]
    return str(layer)


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
    assert plan.study("GPU", "static", "text")[0] == "device=mali"


def published(folder: Path, choice: int) -> subprocess.CompletedProcess[str]:
    """Choose from three made-up candidates, of which this one was published as the choice."""
    head, of = "model,device,quantization,", "ResNet50,GPU,static"
    points = {0: "30.0,25.0", 1: "20.0,30.0", 2: "10.0,90.0"}
    lines = [f"{of},{index},{point}" for index, point in points.items()]
    candidates = [f"{head}index,dissimilarity_pct,size_mb", *lines]
    choices = [f"{head}rank,index,dissimilarity_pct,size_mb", f"{of},1,{choice},{points[choice]}"]
    (folder / "published_candidates.csv").write_text("\n".join(candidates))
    (folder / "published_choices.csv").write_text("\n".join(choices))
    return choosing(folder)


def choosing(*folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--published-data", *folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_choices_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    same, another = published(tmp_path, 1), published(tmp_path, 2)
    assert same.returncode == 0 and same.stdout.strip().endswith("1 of 1"), same.stderr
    assert "#1 20.00 % 30.00 MB" in same.stdout and "17.69 % 41.31 MB" in same.stdout
    assert another.returncode == 1 and another.stdout.strip().endswith("0 of 1")
    assert "ANOTHER" in another.stdout


def test_missing_published_results_are_named(tmp_path: Path) -> None:
    result = choosing(tmp_path)
    assert result.returncode == 1
    assert f"there is no {tmp_path / 'published_candidates.csv'}" in result.stderr


@requires_published_results
def test_all_published_choices_are_seqtos() -> None:
    result = choosing()
    assert result.returncode == 0 and result.stdout.strip().endswith("16 of 16"), result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["none"],
        [".", "--models", "vgg"],
        [".", "--quantizations", "static,int3"],
        [".", "--orders", "none"],
    ],
)
def test_bad_arguments_are_named(
    script: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.parse(arguments)
    assert arguments[-1].rpartition(",")[2] in capsys.readouterr().err
