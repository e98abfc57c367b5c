"""The words for a model and samples in files of the user's own."""

from pathlib import Path

from seqto.config.words import word

_KINDS = {".npz": "npz", ".txt": "text"}
"""Datasets that are one file, by its extension."""


def model_words(path: str | Path) -> list[str]:
    """Return the words for an ONNX file."""
    return ["model=local", word("model.path", str(path))]


def sample_words(path: str | Path) -> list[str]:
    """Return the words for a folder of images, a .npz file, or a .txt file of one text per line."""
    kind = _KINDS.get(Path(path).suffix.lower(), "images")
    return [f"dataset={kind}", word("dataset.path", str(path))]
