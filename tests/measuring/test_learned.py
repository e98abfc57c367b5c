"""What was learned, as a file and as a document."""

import json
from pathlib import Path

import numpy as np

from seqto.measuring.learned import as_document, from_document, load_learned, save_learned
from seqto.types import Learned

LEARNED: Learned = {
    "integers int4/32 ../a/b\0c": np.arange(200, dtype=np.uint8),
    "file": np.float32([[1, -2.5]]),
    "shift int8 /conv:0": np.zeros(0, np.float32),
}


def check(found: Learned) -> None:
    assert list(found) == list(LEARNED)
    for name, array in LEARNED.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_file_keeps_all_names_and_values(tmp_path: Path) -> None:
    save_learned(LEARNED, tmp_path / "learned.npz")
    check(load_learned(tmp_path / "learned.npz"))
    assert [each.name for each in tmp_path.iterdir()] == ["learned.npz"]


def test_a_document_is_json(tmp_path: Path) -> None:
    check(from_document(json.loads(json.dumps(as_document(LEARNED)))))


def test_nothing_is_something(tmp_path: Path) -> None:
    save_learned({}, tmp_path / "learned.npz")
    assert load_learned(tmp_path / "learned.npz") == {} == from_document(as_document({}))
