"""Values that a user has to give are looked for before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf.errors import MissingMandatoryValue

from seqto.config.compose import composed
from seqto.config.missing import check_files, check_given
from seqto.errors import DatasetError, ModelError, SeqtoError

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


ABSENT: list[tuple[list[str], type[SeqtoError], str]] = [
    (["model=local", "model.path=a.onnx"], ModelError, "a.onnx does not exist: check the path"),
    (["dataset=images", "dataset.path=photos"], DatasetError, "photos does not exist"),
    (["dataset=npz", "dataset.path=b.npz"], DatasetError, "b.npz does not exist"),
    (
        ["dataset=text", "dataset.path=.", "dataset.tokenizer=t.json"],
        DatasetError,
        "t.json does not exist: set dataset.tokenizer",
    ),
]


@pytest.mark.parametrize(("words", "error", "said"), ABSENT, ids=[each[2] for each in ABSENT])
def test_files_that_are_not_there_are_named(
    words: list[str], error: type[SeqtoError], said: str
) -> None:
    with pytest.raises(error, match=said):
        check_files(composed(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=local"], "model.path is not given"),
        (["model=local", "model.path=a.onnx"], "a.onnx does not exist"),
    ],
)
def test_nothing_heavy_is_imported_before(tmp_path: Path, words: list[str], said: str) -> None:
    code = (
        f"import sys; from seqto.cli import main; sys.argv = {['seqto', *words, '-m']}\n"
        "try: main()\n"
        "finally: print([name for name in ('mlflow', 'onnxruntime', 'scipy', 'pymoo') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (1, "[]"), done.stderr
    assert said in done.stderr


def test_a_wrong_value_is_told_before_mlflow_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from seqto.cli import main\n"
        "sys.argv = ['seqto', 'search.evaluations=x', '-m']\n"
        "try: main()\n"
        "finally: print([name for name in ('mlflow', 'pymoo', 'sklearn') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "[]"), done.stderr
    assert "search.evaluations='x' has to be a valid integer" in done.stderr
