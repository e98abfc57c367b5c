"""Samples from a file of texts."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suite_datasets import DatasetSuite

from seqto.datasets.text import TextLines
from seqto.errors import DatasetError
from seqto.protocols import Dataset
from seqto.types import TensorSpec

tokenizers = pytest.importorskip("tokenizers", reason="needs seqto[text]")

WORDS = [f"w{number}" for number in range(50)]
SPEC = TensorSpec("input_ids", (None, None), "int64")
NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def tokenizer(folder: Path, padding: dict[str, Any] | None = None) -> str:
    """Write a tokenizer of words, with a token before and after each text; return its path."""
    special = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}
    ids = special | {word: 4 + at for at, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    if padding is not None:
        made.enable_padding(**padding)
    made.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def texts(count: int = 20, first: int = 0) -> list[str]:
    """Return texts of different words and lengths."""
    return [" ".join(WORDS[first + at : first + at + 2 + at % 3]) for at in range(count)]


def made(folder: Path, lines: list[str], **options: Any) -> TextLines:
    """Return a dataset of these lines."""
    (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    chosen = {"calibration_size": 5, "evaluation_size": None, **options}
    path = chosen.pop("tokenizer", None) or tokenizer(folder)
    return TextLines(path=str(folder / "lines.txt"), tokenizer=path, **chosen)


def specs(*names: str, shape: tuple[int | None, ...] = (None, None)) -> list[TensorSpec]:
    """Return inputs of these names."""
    return [TensorSpec(name, shape, "int64") for name in names]


class TestText(DatasetSuite):
    """The conformance suite."""

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        """Return a small file's dataset."""
        return made(tmp_path, texts())

    @pytest.fixture
    def other(self, tmp_path: Path) -> Dataset:
        """Return the dataset of other texts."""
        (tmp_path / "other").mkdir()
        return made(tmp_path / "other", texts(first=20))

    @pytest.fixture
    def spec(self) -> TensorSpec:
        """Return the input that takes the ids."""
        return SPEC


def test_ids_masks_types_and_positions_are_padded_alike(tmp_path: Path) -> None:
    lines = [*texts(6), "w7 w8\tw9"]
    splits = made(tmp_path, lines, calibration_size=1).load(specs(*NAMES))
    found = {}
    for part in (splits.calibration, splits.evaluation):
        for at, key in enumerate(part.ids):
            found[key] = {name: array[at].tolist() for name, array in part.inputs.items()}
            assert part.mask is not None
            assert part.mask[at].tolist() == [each == 1 for each in found[key]["attention_mask"]]
    # [CLS] w7 w8 [SEP] w9 [SEP], the longest.
    assert found["sample-00006"] == {
        "input_ids": [1, 11, 12, 2, 13, 2],
        "attention_mask": [1] * 6,
        "token_type_ids": [0, 0, 0, 0, 1, 1],
        "position_ids": [0, 1, 2, 3, 4, 5],
    }
    assert found["sample-00000"] == {
        "input_ids": [1, 4, 5, 2, 0, 0],
        "attention_mask": [1, 1, 1, 1, 0, 0],
        "token_type_ids": [0] * 6,
        "position_ids": [0, 1, 2, 3, 3, 3],
    }


@pytest.mark.parametrize(("length", "shape"), [(4, (None, None)), (16, (None, 16)), (3, (None, 3))])
def test_texts_are_cut_and_padded(
    tmp_path: Path, length: int, shape: tuple[int | None, ...]
) -> None:
    # Texts that are cut to the same tokens are copies.
    dataset = made(tmp_path, texts(), max_length=4)
    ids = dataset.load(specs("input_ids", shape=shape)).evaluation.inputs["input_ids"]
    assert ids.shape[1] == length
    assert (ids[:, 0] == 1).all() and ((ids == 2).sum(axis=1) == 1).all()


def test_a_tokenizer_may_pad_on_the_left(tmp_path: Path) -> None:
    path = tokenizer(tmp_path, {"direction": "left", "pad_id": 3, "pad_token": "[UNK]"})
    inputs = made(tmp_path, texts(), tokenizer=path).load(specs(*NAMES)).evaluation.inputs
    short = inputs["attention_mask"].sum(axis=1) == 4
    assert short.any()
    assert (inputs["input_ids"][short][:, :3] == [3, 3, 1]).all()
    assert (inputs["position_ids"][short] == [0, 0, 0, 1, 2, 3]).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_types_are_those_of_the_model(tmp_path: Path, dtype: str) -> None:
    inputs = [
        TensorSpec("model/tokens:0", (None, None), dtype),
        TensorSpec("attention_mask", (None, None), "float32"),
    ]
    found = made(tmp_path, texts()).load(inputs).evaluation.inputs
    assert found["model/tokens:0"].dtype == dtype
    assert found["attention_mask"].dtype == np.float32


def test_false_is_for_no_labels_as_in_other_datasets(tmp_path: Path) -> None:
    assert made(tmp_path, texts(), labels=False).load([SPEC]).evaluation.targets is None


@pytest.mark.parametrize(
    "labels",
    [
        [str(at) for at in range(20)],
        [f"tag {at}" for at in range(20)],
        [str(10**30 + at) for at in range(20)],
    ],
)
def test_labels_stay_with_their_texts(tmp_path: Path, labels: list[str]) -> None:
    lines = texts()
    lines[7] = "   "
    (tmp_path / "labels.txt").write_text("\r\n".join(labels) + "\r\n")
    splits = made(tmp_path, lines, labels=str(tmp_path / "labels.txt")).load([SPEC])
    targets = splits.evaluation.targets
    assert targets is not None and len(splits.calibration) + len(targets) == 19
    for ids, target in zip(splits.evaluation.inputs["input_ids"], targets, strict=True):
        # The first word of each text has the number of its line.
        assert str(target) == labels[ids[1] - 4]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (specs("input_ids", "decoder_input_ids"), "'decoder_input_ids' .* dataset.constants"),
        ([TensorSpec("input_ids", (None, 4, 8), "int64")], "does not fit"),
        (
            [
                TensorSpec("input_ids", (None, 8), "int64"),
                *specs("attention_mask", shape=(None, 9)),
            ],
            r"'attention_mask' int64\[\?, 9\] does not fit",
        ),
        (specs("attention_mask"), "'attention_mask' .* gives tokens"),
    ],
)
def test_other_inputs_are_refused(tmp_path: Path, inputs: list[TensorSpec], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        made(tmp_path, texts()).load(inputs)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tokenizer": str(tmp_path / "none.json")}, "none.json does not exist.*dataset.tokenizer"),
        ({"tokenizer": str(tmp_path / "lines.txt")}, "cannot be read as a tokenizer"),
        ({"labels": str(tmp_path / "none.txt")}, "none.txt does not exist.*dataset.labels"),
        ({"labels": tokenizer(tmp_path)}, "each text needs one label"),
        ({"max_length": 1}, "cannot be cut to 1 tokens"),
        ({"evaluation_size": 500}, "has 20 texts, but 5 to calibrate and 500"),
    ]
    for options, message in cases:
        with pytest.raises(DatasetError, match=message):
            made(tmp_path, texts(), **options).load([SPEC])
    with pytest.raises(DatasetError, match="dataset.path to a file"):
        TextLines(path=str(tmp_path / "no"), tokenizer="t").load([SPEC])


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = made(tmp_path, texts())
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DatasetError, match=r"pip install 'seqto\[text\]'"):
        dataset.load([SPEC])
