"""What a quantizer learned from samples, as a file and as a document for other machines."""

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqto.measuring.archive import write_arrays
from seqto.types import Learned

_NAMES = "names"
_CONTENT = "npz"


def save_learned(learned: Learned, path: Path) -> None:
    """Write what was learned to a .npz file."""
    path.write_bytes(_packed(learned))


def load_learned(path: Path) -> Learned:
    """Return what `save_learned` wrote."""
    return _unpacked(path.read_bytes())


def as_document(learned: Learned) -> dict[str, str]:
    """Return what was learned as a JSON document."""
    return {_CONTENT: base64.b64encode(_packed(learned)).decode()}


def from_document(document: Mapping[str, Any]) -> Learned:
    """Return what was learned from its JSON document."""
    return _unpacked(base64.b64decode(document[_CONTENT]))


def _packed(learned: Learned) -> bytes:
    # Numbered, because names of layers may have characters that names in an archive may not have.
    names = np.frombuffer(json.dumps(list(learned)).encode(), np.uint8)
    file = io.BytesIO()
    write_arrays(file, {_NAMES: names, **_numbered(learned)}, compressed=True)
    return file.getvalue()


def _numbered(learned: Learned) -> dict[str, np.ndarray]:
    return {f"array {number}": each for number, each in enumerate(learned.values())}


def _unpacked(content: bytes) -> Learned:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        names = json.loads(file[_NAMES].tobytes())
        return {name: file[f"array {number}"] for number, name in enumerate(names)}
