"""Models from files of the user."""

from pathlib import Path

import pytest
from onnx_models import residual
from pydantic import ValidationError
from suite_sources import ModelSourceSuite

from seqto.errors import ModelError
from seqto.models.local import LocalModel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a saved model."""
    path = tmp_path / "my.model.onnx"
    path.write_bytes(residual().to_bytes())
    return path


class TestLocalModel(ModelSourceSuite):
    """The conformance suite."""

    @pytest.fixture
    def source(self, path: Path) -> LocalModel:
        """Return a model source of this file."""
        return LocalModel(path=str(path))


@pytest.mark.parametrize("name", [None, ""])
def test_name_is_the_files_unless_given(path: Path, name: str | None) -> None:
    assert LocalModel(path=str(path), name=name).name == "my.model"
    assert LocalModel(path=str(path), name="mine").load().name == "mine"


def test_path_may_begin_at_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    assert LocalModel(path="~/my.model.onnx").load().to_bytes() == residual().to_bytes()


def test_missing_file_is_an_error_of_load() -> None:
    source = LocalModel(path="nowhere/none.onnx")
    with pytest.raises(ModelError, match="none.onnx does not exist"):
        source.load()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValidationError, match="file"):
        LocalModel(path="a.onnx", file="b.onnx")
    with pytest.raises(ValidationError, match="path"):
        LocalModel(path=3)
