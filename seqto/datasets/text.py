"""Samples from a file of texts, turned into tokens."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.draw import CalibrationSize, Draw, EvaluationSize, split_arrays
from seqto.datasets.fit import check_fits
from seqto.errors import DatasetError
from seqto.types import Arrays, Splits, TensorSpec

_IDS, _MASK, _TYPES, _POSITIONS = "ids", "mask", "types", "positions"

_ROLES = {
    _MASK: re.compile(r"(attention|input|padding)?_?mask"),
    _TYPES: re.compile(r"(token_?type|segment)(_?ids?)?"),
    _POSITIONS: re.compile(r"position(_?ids?)?"),
    _IDS: re.compile(r"(input_?|token_?)?ids|input|tokens|inputs"),
}
"""The usual names of a language model's inputs, in the order in which they are looked for."""

_PADDING = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")
_REMEDY = (
    "dataset=text fills token ids, attention mask, token types and positions, each [samples, "
    "length]; give other inputs with dataset=python, or fix them with dataset.constants"
)


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class TextLines:
    """A file with one text per line, or two texts with a tab between them, and a tokenizer's file.

    Longer texts are cut, shorter ones padded to the longest, or to the model's length if it is
    fixed. Labels are in another file, one per line. Empty lines are left out.
    """

    path: str = field(compare=False)
    tokenizer: str = field(compare=False)
    labels: str | Literal[False] | None = field(default=None, compare=False)
    max_length: PositiveInt = 128
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    name: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        self.name = Path(self.path).stem

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        roles = _roles(inputs, self.name)
        length = _fixed_length(inputs)
        texts, labels = self._texts()
        encoder = _Encoder(_tokenizer(self.tokenizer), length or self.max_length)
        draw = Draw(self.calibration_size, self.evaluation_size, self.seed, self.path, "texts")
        drawn = draw.of(len(texts), lambda index: encoder.digest(texts[index]))
        rows = [encoder.encoded(texts[index]) for index in drawn.order]
        columns = encoder.columns(rows, length)
        arrays = {
            spec.name: columns[roles[spec.name]].astype(np.dtype(spec.dtype)) for spec in inputs
        }
        check_fits(arrays, inputs, self.name, _REMEDY)
        targets = None if labels is None else _targets([labels[at] for at in drawn.order])
        return split_arrays(arrays, targets, drawn, columns[_MASK].astype(bool))

    def _texts(self) -> tuple[list[str], list[str] | None]:
        """Return the texts that are not empty, and their labels if there are any."""
        texts = _lines(self.path, "dataset.path")
        kept = [at for at, text in enumerate(texts) if text.strip()]
        if not self.labels:
            return [texts[at] for at in kept], None
        labels = _lines(self.labels, "dataset.labels")
        if len(labels) != len(texts):
            raise DatasetError(
                f"{self.labels} has {len(labels)} lines and {self.path} {len(texts)}: each text "
                "needs one label, on the line of the same number."
            )
        return [texts[at] for at in kept], [labels[at] for at in kept]


class _Encoder:
    """A tokenizer that cuts texts at this length, and keeps what it has encoded."""

    def __init__(self, tokenizer: Any, length: int) -> None:
        self._tokenizer, self._length = tokenizer, length
        self._known: dict[str, Any] = {}
        padding = tokenizer.padding or {}
        self._pad_id = padding.get("pad_id", _pad_id(tokenizer))
        self._left = padding.get("direction") == "left"
        tokenizer.no_padding()
        tokenizer.enable_truncation(length)

    def encoded(self, text: str) -> Any:
        """Return the tokens of a text, or of two texts with a tab between them."""
        if text not in self._known:
            found = self._known[text] = self._tokenizer.encode(*text.split("\t", 1))
            if not found.ids:
                raise DatasetError(f"the tokenizer finds no token in {text[:60]!r}: leave it out.")
            # The library does not cut where the length has no room for its special tokens.
            if len(found.ids) > self._length:
                raise DatasetError(
                    f"{text[:60]!r} cannot be cut to {self._length} tokens, as the tokenizer adds "
                    "some of its own: raise dataset.max_length, or the model's length."
                )
        return self._known[text]

    def digest(self, text: str) -> str:
        """Return a key of a text's tokens: two texts may differ only in what is cut off."""
        found = self.encoded(text)
        return hashlib.sha256(repr((found.ids, found.type_ids)).encode()).hexdigest()

    def columns(self, rows: Sequence[Any], length: int | None) -> Arrays:
        """Return the arrays of these texts by their roles, padded to one length."""
        width = length or max(len(row.ids) for row in rows)
        mask = self._padded([[1] * len(row.ids) for row in rows], width, 0)
        return {
            _IDS: self._padded([row.ids for row in rows], width, self._pad_id),
            _TYPES: self._padded([row.type_ids for row in rows], width, 0),
            _MASK: mask,
            _POSITIONS: np.clip(np.cumsum(mask, axis=1) - 1, 0, None),
        }

    def _padded(self, rows: Sequence[Sequence[int]], width: int, value: int) -> np.ndarray:
        padded = np.full((len(rows), width), value, np.int64)
        for at, row in enumerate(rows):
            padded[at, slice(width - len(row), None) if self._left else slice(len(row))] = row
        return padded


def _roles(inputs: Sequence[TensorSpec], name: str) -> Mapping[str, str]:
    """Return what each input of the model is to be filled with."""
    found: dict[str, str] = {}
    for spec in inputs:
        role = _role(spec)
        if role is not None and role not in found.values():
            found[spec.name] = role
    rest = [spec for spec in inputs if spec.name not in found]
    # The ids may have any name.
    if len(rest) == 1 and _IDS not in found.values() and _takes(rest[0], _IDS):
        found[rest[0].name] = _IDS
    if len(found) < len(inputs) or _IDS not in found.values():
        wanted = ", ".join(map(str, inputs))
        problem = (
            f"model input {wanted} does not fit"
            if len(rest) == len(inputs) == 1
            else (f"model wants {wanted}")
        )
        raise DatasetError(f"{problem}, dataset {name} gives tokens: {_REMEDY}.")
    return found


def _role(spec: TensorSpec) -> str | None:
    """Return what an input is to be filled with, by its name."""
    bare = re.sub(r":\d+$", "", spec.name).rpartition("/")[2].lower()
    roles = [role for role, names in _ROLES.items() if names.fullmatch(bare)]
    return next((role for role in roles if _takes(spec, role)), None)


def _takes(spec: TensorSpec, role: str) -> bool:
    """Tell whether an input can be filled with this; a mask may have any type."""
    kinds = "iufb" if role == _MASK else "iu"
    return len(spec.shape) == 2 and np.dtype(spec.dtype).kind in kinds


def _fixed_length(inputs: Sequence[TensorSpec]) -> int | None:
    """Return the length that the model fixes; where inputs disagree, none fits."""
    return next((spec.shape[1] for spec in inputs if spec.shape[1] is not None), None)


def _tokenizer(path: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DatasetError(
            "dataset=text needs the tokenizers library, which is not installed: "
            "pip install 'seqto[text]' (in a checkout '.[text]')."
        ) from error
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise DatasetError(f"{file} does not exist: set dataset.tokenizer to a tokenizer.json.")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # The library has no class of its own for errors.
        raise DatasetError(
            f"{file} cannot be read as a tokenizer ({error}): give the tokenizer.json that was "
            "published with the model."
        ) from error


def _pad_id(tokenizer: Any) -> int:
    """Return the id of the token that fills up short texts."""
    ids = [tokenizer.token_to_id(token) for token in _PADDING]
    return next((each for each in ids if each is not None), 0)


def _lines(path: str, key: str) -> list[str]:
    """Return the lines of a file in UTF-8."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DatasetError(f"{file} does not exist: set {key} to a file with one entry per line.")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{file} cannot be read as UTF-8 ({error}): convert it first."
        ) from error
    # Not splitlines, which also ends lines at characters that belong to texts.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _targets(labels: Sequence[str]) -> np.ndarray | tuple[str, ...]:
    """Return labels as class indices if all are whole numbers, else as the texts that they are."""
    try:
        return np.array([int(label) for label in labels], np.int64)
    except (ValueError, OverflowError):
        return tuple(labels)
