"""What outputs probably mean, where nobody says it."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import ModelError
from seqto.metrics.agreement import usable
from seqto.metrics.entries import Entries, described, in_words
from seqto.metrics.harm import are_distributions
from seqto.protocols import Task
from seqto.tasks.binary import Binary
from seqto.tasks.classification import Classification
from seqto.tasks.embedding import Embedding
from seqto.tasks.segmentation import Segmentation
from seqto.tasks.tokens import Tokens
from seqto.types import Outputs, Targets, TensorSpec

_OF_SCORES = re.compile(r"logit|prob|softmax|class", re.IGNORECASE)
_OF_VECTORS = re.compile(r"embed|feature|pooled|pooler|sentence|hidden|proj", re.IGNORECASE)
_OF_TEXTS = re.compile(r"ids|token|text|word|char|byte|sentence|seq|mask|input|query", re.I)
_OF_PLACES = re.compile(r"box|coord|landmark|keypoint|point|rect|pose", re.IGNORECASE)

_UNIT = 1e-3
"""How far a length of 1 may be off."""

_FEW_CLASSES = 32
"""Classifiers of texts have fewer classes; more values may as well be an embedding."""

_VECTOR, _STEP = 16, 64
"""Embeddings have at least so many values, and from twice the second on multiples of it."""

_COLUMNS_OF_BOXES = 4

_CHOICES_OF_MAPS = "task=segmentation for a mask, task=detection for boxes, "
_CHOICES_OF_POSITIONS = (
    "task=tokens for scores at each position, task=text task.decoding=ctc for a text, "
    "task=embedding task.pooling=mean (or first) for a vector per position, or task=regression"
)


class Guess(NamedTuple):
    """A task, and what it was told by."""

    task: Task
    reason: str


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class AutoTask:
    """Looks at outputs of the float model, and refuses where they may mean several things."""

    name: str = "auto"

    def of(
        self, outputs: Outputs, inputs: Sequence[TensorSpec], targets: Targets | None = None
    ) -> Guess:
        """Return what these outputs of the float model mean, for some samples; or refuse."""
        if len(outputs) != 1:
            raise _unclear(
                f"the model has {len(outputs)} outputs: {in_words(outputs)}",
                "say task=detection for boxes with their scores, task=regression to compare all of "
                f"them, or choose the one that counts with 'model.outputs=[{_likely(outputs)}]'",
            )
        ((name, entries),) = outputs.items()
        if np.asarray(entries[0]).dtype.kind != "f":
            raise _unclear(
                f"output {described(name, entries)}, of {_kind(entries[0])}",
                "choose the scores that they are made from with 'model.outputs=[...]', if there "
                f"are some (they also tell small differences); else {_choices_of_ids(entries)}",
            )
        seen = _Seen(name, entries, tuple(inputs), _class_ids(targets, len(entries)))
        found = _by_rank(seen)
        if found is None:
            raise _unclear(f"output {described(name, entries)}{seen.values}", _choices(seen))
        return found


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What there is to see of the single output."""

    name: str
    entries: Entries
    inputs: tuple[TensorSpec, ...]
    class_ids: np.ndarray | None
    """The targets, if they are whole numbers from 0 on."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape per sample of the largest entry, without axes of length 1."""
        largest = max((np.shape(each) for each in self.entries), key=np.prod)
        return tuple(size for size in largest if size != 1)

    @property
    def rows(self) -> np.ndarray:
        """All rows along the last axis that are usable."""
        rows = [np.reshape(each, (-1, self.shape[-1])) for each in self.entries]
        found = np.concatenate(rows)
        return np.asarray(found[usable(found)])

    @property
    def images(self) -> bool:
        """Whether the model takes images."""
        return any(len(each.shape) == 4 and not _is_text(each) for each in self.inputs)

    @property
    def texts(self) -> bool:
        """Whether the model takes tokens."""
        return any(_is_text(each) for each in self.inputs)

    @property
    def says_scores(self) -> bool:
        return bool(_OF_SCORES.search(self.name)) and not _OF_VECTORS.search(self.name)

    @property
    def says_vectors(self) -> bool:
        return bool(_OF_VECTORS.search(self.name)) and not _OF_SCORES.search(self.name)

    @property
    def says_places(self) -> bool:
        return bool(_OF_PLACES.search(self.name))

    @property
    def may_be_classes(self) -> bool:
        """Whether whole numbers as targets may be this row's classes.

        Of a vector as long as embeddings are, they may as well be persons: then no target is where
        the highest value is.
        """
        if not _is_usual_vector(self.shape[-1]):
            return True
        highest = [int(np.argmax(each)) for each in self.entries]
        found = [] if self.class_ids is None else self.class_ids.tolist()
        return any(one == two for one, two in zip(highest, found, strict=False))

    @property
    def lowest(self) -> float:
        """The least value that is finite."""
        return float(self._finite.min(initial=np.inf))

    @property
    def highest(self) -> float:
        """The largest value that is finite."""
        return float(self._finite.max(initial=-np.inf))

    @property
    def values(self) -> str:
        """The range of the values, in words."""
        if not len(self._finite):
            return ""
        return f", with values from {self.lowest:.3g} to {self.highest:.3g}"

    @functools.cached_property
    def _finite(self) -> np.ndarray:
        known = np.concatenate([np.ravel(each) for each in self.entries])
        return np.asarray(known[np.isfinite(known)])


def _by_rank(seen: _Seen) -> Guess | None:
    if any(np.size(each) == 0 for each in seen.entries):
        return None
    if not seen.shape:
        return _of_one_value(seen)
    alike = len({np.shape(each) for each in seen.entries}) == 1
    if len(seen.shape) == 1 and alike:
        return _of_rows(seen)
    if len(seen.shape) == 3:
        return _of_pixels(seen)
    same_last = len({np.shape(each)[-1] for each in seen.entries}) == 1
    return _of_positions(seen) if len(seen.shape) == 2 and same_last else None


def _of_one_value(seen: _Seen) -> Guess | None:
    known = set() if seen.class_ids is None else set(seen.class_ids.tolist())
    # Of a few samples, all may be of one class.
    if known == {0, 1} or (known and known < {0, 1} and seen.says_scores):
        return Guess(Binary(), "there is one value per sample, and targets are 0 and 1")
    return None


def _of_rows(seen: _Seen) -> Guess | None:
    """Return what one row per sample means."""
    (size,) = seen.shape
    rows = seen.rows
    if len(rows) and are_distributions(rows):
        return Guess(Classification(), "rows sum to 1")
    if seen.says_places:
        return None
    if size >= _VECTOR and len(rows) and _have_length_1(rows):
        return Guess(Embedding(), "rows have a length of 1")
    if seen.says_vectors:
        return Guess(Embedding(), f"the output is called {seen.name!r}")
    if seen.class_ids is not None and seen.class_ids.max() < size and seen.may_be_classes:
        return Guess(Classification(), f"targets are classes below {size}")
    if seen.says_scores:
        # Probabilities that do not sum to 1 are of tags, of which several hold.
        tags = seen.lowest >= 0 and seen.highest <= 1
        return None if tags else Guess(Classification(), f"the output is called {seen.name!r}")
    if size == _COLUMNS_OF_BOXES or _have_length_1(rows) or seen.lowest >= 0:
        # Some logits are negative; coordinates, ages and tags are not.
        return None
    if seen.texts:
        return _plain(seen, "texts") if size < _FEW_CLASSES else None
    return _plain(seen, "images") if seen.images and not _is_usual_vector(size) else None


def _plain(seen: _Seen, what: str) -> Guess:
    return Guess(Classification(), f"the model takes {what} and returns one row of scores")


def _of_positions(seen: _Seen) -> Guess | None:
    """Return what several rows per sample mean.

    Of images and sounds they may be CTC's, where it is the text that counts: the same text with
    its letters a position later has lost nothing.
    """
    rows = seen.rows
    if not seen.texts or seen.says_places:
        return None
    if len(rows) and are_distributions(rows):
        return Guess(Tokens(), "rows sum to 1 at each position of a text")
    if seen.says_scores:
        return Guess(Tokens(), f"the output is called {seen.name!r} and the model takes texts")
    return None


def _of_pixels(seen: _Seen) -> Guess | None:
    """Return what images mean: classes of pixels, if their probabilities are seen."""
    maps = [np.asarray(each) for each in seen.entries]
    if not seen.images or any(each.ndim != 3 for each in maps):
        return None
    for axis in (0, 2):
        rows = [np.moveaxis(each, axis, -1) for each in maps]
        if all(usable(each).any() and are_distributions(each) for each in rows):
            return Guess(Segmentation(axis=axis), "the values of each pixel sum to 1")
    return None


def _have_length_1(rows: np.ndarray) -> bool:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    return bool((np.abs(lengths - 1) < _UNIT).all())


def _is_usual_vector(size: int) -> bool:
    """Tell whether embeddings often have so many values."""
    return size >= 2 * _STEP and size % _STEP == 0


def _is_text(spec: TensorSpec) -> bool:
    """Tell whether an input has a number for each token; one per sample is a user's, say."""
    numbers = "int" in spec.dtype and "uint8" not in spec.dtype
    several = len(spec.shape) == 2 and spec.shape[1] != 1
    return numbers and several and (spec.shape[1] is None or bool(_OF_TEXTS.search(spec.name)))


def _kind(entry: np.ndarray) -> str:
    dtype = np.asarray(entry).dtype
    kinds = {"i": f"whole numbers ({dtype})", "u": f"whole numbers ({dtype})", "b": "yes and no"}
    return kinds.get(dtype.kind, "texts")


def _class_ids(targets: Targets | None, samples: int) -> np.ndarray | None:
    """Return the targets if they are one whole number per sample, from 0 on."""
    if targets is None or not len(targets) or len(targets) < samples:
        return None
    found = [np.asarray(each) for each in targets]
    if any(each.size != 1 or each.dtype.kind not in "iub" for each in found):
        return None
    numbers = np.array([int(each.item()) for each in found])
    return numbers if numbers.min() >= 0 else None


def _choices(seen: _Seen) -> str:
    """Return the tasks that the output may be for, in words."""
    if seen.says_places:
        return "say task=detection, or task=regression for coordinates"
    if not seen.shape:
        return "say task=binary for a yes or no, or task=regression for a quantity"
    if len(seen.shape) == 1:
        return (
            "say task=classification for scores of classes of which one holds, task=embedding for "
            "a vector that others are compared with, or task=regression for quantities, and for "
            "tags of which several hold"
        )
    if len(seen.shape) == 2 and all(np.ndim(each) == 2 for each in seen.entries):
        return f"say {'' if seen.texts else _CHOICES_OF_MAPS}{_CHOICES_OF_POSITIONS}"
    return (
        "say task=segmentation for classes of pixels, task=detection for boxes, or "
        "task=regression (task=audio) for any other numbers"
    )


def _choices_of_ids(entries: Entries) -> str:
    """Return the tasks that whole numbers, yes and no, or texts may be for, in words."""
    if np.asarray(entries[0]).dtype.kind not in "iub":
        return "export the model with numbers"
    if np.size(entries[0]) == 1:
        return "export the model with scores"
    return "say task=segmentation for classes of pixels, or task=text for numbers of tokens"


def _likely(outputs: Outputs) -> str:
    """Return the first output that may be scores."""
    floats = [name for name, each in outputs.items() if np.asarray(each[0]).dtype.kind == "f"]
    return next(iter([*floats, *outputs]), "")


def _unclear(seen: str, remedy: str) -> ModelError:
    return ModelError(f"it is not clear what the model's outputs mean ({seen}): {remedy}.")
