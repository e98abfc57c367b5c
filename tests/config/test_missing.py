"""Values that a user has to give are looked for before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf.errors import MissingMandatoryValue

from seqto.config.compose import composed
from seqto.config.missing import check_given

MISSING = {
    "model.path": ["model=local"],
    "dataset.path": ["dataset=npz"],
    "model.repo": ["model=hub", "dataset=npz"],
    "dataset.target": ["dataset=python"],
}


@pytest.mark.parametrize("key", MISSING)
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(MissingMandatoryValue, match=key):
        check_given(composed(MISSING[key]))


def test_what_is_given_is_not_missing() -> None:
    check_given(composed(["model=local", "model.path=a.onnx", "dataset=npz", "dataset.path=b.npz"]))
    check_given(composed([]))


def test_nothing_heavy_is_imported_before(tmp_path: Path) -> None:
    code = (
        "import sys; from seqto.cli import main; sys.argv = ['seqto', 'model=local', '-m']\n"
        "try: main()\n"
        "finally: print([name for name in ('mlflow', 'onnxruntime', 'scipy', 'pymoo') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (1, "[]"), done.stderr
    assert "model.path is not given" in done.stderr
