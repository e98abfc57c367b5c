"""Documents in tags."""

import random

import pytest

from seqto.tracking.packed import packed, unpacked

DOCUMENT = {"key": "a", "precisions": {f"layer {at}": "int8" for at in range(200)}, "x": [0.5, 1]}


def test_document_comes_back_from_a_tag_that_no_page_lists() -> None:
    tags = packed("losses.json", DOCUMENT)
    ((name, text),) = tags.items()
    assert name.startswith("mlflow.") and len(text) < 5000
    assert unpacked("losses.json", {**tags, "other": "tag"}) == DOCUMENT


def test_document_that_is_too_long_for_a_tag_has_none() -> None:
    draw = random.Random(0)
    assert packed("losses.json", {"losses": [draw.random() for _ in range(2000)]}) == {}


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", None])
def test_what_is_missing_or_damaged_is_not_believed(text: str | None) -> None:
    whole = packed("losses.json", DOCUMENT)
    tags = {} if text is None else {name: text for name in whole}
    assert unpacked("losses.json", tags) is None


def test_what_was_cut_is_not_believed() -> None:
    ((name, text),) = packed("losses.json", DOCUMENT).items()
    assert unpacked("losses.json", {name: text[: len(text) // 8 * 4]}) is None
