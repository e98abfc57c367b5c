"""The words for a model and samples in files of the user's own."""

from pathlib import Path

from seqto.config.words import word
from seqto.errors import DatasetError

_KINDS = {".npz": "npz", ".txt": "text"}
"""Datasets that are one file, by its extension."""

SAMPLES = "a folder of images, a .npz file, a .txt file of texts, or dataset=... with its keys"


def model_words(path: str | Path) -> list[str]:
    """Return the words for an ONNX file."""
    return ["model=local", word("model.path", str(path))]


def tokenizer_words(model: str | Path) -> list[str]:
    """Return the words for the tokenizer beside an ONNX file, if there is one."""
    path = Path(model).with_name("tokenizer.json")
    return [word("dataset.tokenizer", str(path))] if path.expanduser().exists() else []


def sample_words(path: str | Path) -> list[str]:
    """Return the words for a folder of images, a .npz file, or a .txt file of one text per line."""
    kind = _KINDS.get(Path(path).suffix.lower(), "images")
    if kind == "images" and Path(path).expanduser().is_file():
        raise DatasetError(f"{path} is none of these: {SAMPLES}.")
    return [f"dataset={kind}", word("dataset.path", str(path))]
