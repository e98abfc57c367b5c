"""A wheel carries the configs, the Hydra plugin and the embedded model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with nothing but the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # From a copy: building in place leaves a build folder behind, and reads an old one.
    copy = folder / "source"
    subprocess.run(["git", "clone", "--quiet", ROOT, copy], check=True)
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    return site


@pytest.mark.slow
def test_installed_wheel_runs_a_study_from_any_folder(installed: Path, tmp_path: Path) -> None:
    assert (installed / "seqto" / "conf" / "config.yaml").exists()
    code = (
        "import seqto, sys; from pathlib import Path; from seqto.cli import main; "
        f"assert Path(seqto.__file__).is_relative_to({str(installed)!r}), seqto.__file__; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed), "SEQTO_CACHE": str(tmp_path / "c")}
    environment.pop("MLFLOW_TRACKING_URI", None)
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "search=ladder",
            "search.step=30",
            "dataset.evaluation_size=50",
            "-m",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "models:/seqto-digits-cpu-static" in result.stdout
