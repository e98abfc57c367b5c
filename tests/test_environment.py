"""`scripts/environment` installs with uv, or with pip where uv cannot be had."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Needs nothing from an index, so that this runs offline.
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tiny"
version = "1"
"""

BACKEND = """
import zipfile


def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(
            "tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n"
        )
        wheel.writestr(
            "tiny-1.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        )
        wheel.writestr("tiny-1.dist-info/RECORD", "")
    return name
"""

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with nothing but pip."""
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project that has the script and no dependencies."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "environment", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "backend.py").write_text(BACKEND)
    return tmp_path


def _copy(empty: Path, project: Path) -> Path:
    """Give the project an environment, which takes seconds to make; return its programs."""
    return Path(shutil.copytree(empty, project / ".venv", symlinks=True)) / "bin"


def _run(project: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [project / "scripts" / "environment"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )


def _imports(project: Path) -> bool:
    python = project / ".venv" / "bin" / "python"
    # Elsewhere: the project's folder is on the path of what runs in it.
    return subprocess.run([python, "-c", "import tiny"], cwd=project / "scripts").returncode == 0


@pytest.mark.slow
def test_pip_installs_where_uv_cannot_be_had(project: Path) -> None:
    result = _run(project, **OFFLINE)
    assert result.returncode == 0, result.stderr
    assert "uv cannot be had: installing with pip" in result.stderr
    assert not result.stdout
    assert _imports(project)


@pytest.mark.slow
def test_pip_installs_where_uv_fails_and_a_second_start_does_nothing(
    project: Path, empty: Path
) -> None:
    uv = _copy(empty, project) / "uv"
    uv.write_text("#!/bin/sh\necho no such index >&2\nexit 2\n")
    uv.chmod(0o755)
    result = _run(project, **OFFLINE)
    assert result.returncode == 0, result.stderr
    assert "no such index\nuv could not install: trying again with pip" in result.stderr
    assert _imports(project)
    again = _run(project, **OFFLINE)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.slow
def test_uv_is_told_where_pip_installs_from(project: Path, empty: Path, tmp_path: Path) -> None:
    uv = _copy(empty, project) / "uv"
    uv.write_text('#!/bin/sh\necho "$UV_DEFAULT_INDEX|$UV_INDEX|$UV_FIND_LINKS"\n')
    uv.chmod(0o755)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = http://a/simple\nextra-index-url =\n  http://b\n  http://c\n"
        "find-links = /global\n[install]\nfind-links = /one /two\n"
    )
    settings = {name: "" for name in os.environ if name.startswith(("PIP_", "UV_"))}
    result = _run(project, **settings, PIP_CONFIG_FILE=str(config))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "http://a/simple|http://b http://c|/one,/two\n"


@pytest.mark.slow
def test_a_failed_install_is_repeated(project: Path, empty: Path) -> None:
    _copy(empty, project)
    (project / "backend.py").write_text("raise RuntimeError('broken')")
    assert _run(project, **OFFLINE).returncode != 0
    (project / "backend.py").write_text(BACKEND)
    assert _run(project, **OFFLINE).returncode == 0
    assert _imports(project)


@pytest.mark.slow
def test_uv_installs(project: Path, empty: Path) -> None:
    python = _copy(empty, project) / "python"
    fetched = subprocess.run([python, "-m", "pip", "install", "-qq", "uv"], capture_output=True)
    if fetched.returncode:
        pytest.skip("uv cannot be had from an index here")
    result = _run(project)
    assert result.returncode == 0, result.stderr
    assert "pip" not in result.stderr
    assert _imports(project)
