"""The built wheel in a new environment carries configs, plugin, pages and the embedded model."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of a new environment with the wheel and what it depends on."""
    if not UV.exists():
        pytest.skip("uv, which makes an environment in seconds, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # From a copy: building in place leaves a build folder behind, and reads an old one.
    copy = folder / "source"
    subprocess.run(["git", "clone", "--quiet", ROOT, copy], check=True)
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "new"], check=True)
    install = [UV, "pip", "install", "--quiet", "--python", folder / "new", wheel]
    done = subprocess.run(install, env=as_pip_is_set_up(), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"packages cannot be had here: {done.stderr.splitlines()[0]}")
    return folder / "new" / "bin"


def as_pip_is_set_up() -> dict[str, str]:
    """Return an environment in which uv takes packages from where pip does, as in scripts/."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
    }
    found = {
        uv: match[1].replace("\\n", " ").strip()
        for pip, uv in names.items()
        if (match := re.search(rf"\.{pip}='(.+)'", told))
    }
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = found["UV_FIND_LINKS"].replace(" ", ",")
    return {**os.environ, "UV_INDEX_STRATEGY": "unsafe-best-match", **found}


@pytest.mark.slow
def test_the_first_command_works_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SEQTO_CACHE": str(tmp_path / "cache")}
    for name in ("MLFLOW_TRACKING_URI", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    folder = tmp_path / "empty"
    folder.mkdir()
    words = ["search=ladder", "search.step=30", "dataset.evaluation_size=50", "-m"]
    result = subprocess.run(
        [installed / "seqto", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "models:/seqto-digits-cpu-static" in result.stdout
    (page,) = folder.glob("multirun/*/*/report.html")
    assert (page.parent / "balanced.onnx").is_file()


def test_what_an_index_shows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"keywords", "classifiers", "urls", "readme", "license"} <= project.keys()
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## What each dependency is for")[2]
    told = table.partition("## A new device")[0]
    for each in project["dependencies"]:
        name = each.split(">")[0].split("=")[0]
        assert name in told, f"CONTRIBUTING.md does not say what {name} is for"
