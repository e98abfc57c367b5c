"""From outputs to texts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqto.errors import ConfigError
from seqto.metrics.entries import Entries, misfit, only_output
from seqto.metrics.positions import NONE, position_rows, top_tokens
from seqto.metrics.vocabulary import Vocabulary
from seqto.types import Outputs

Decoding = Literal["ctc", "greedy"]

Text = str | tuple[int, ...]
"""A decoded text; its tokens' numbers if there is no vocabulary."""


@dataclass(frozen=True)
class Decoder:
    """How texts are read from outputs: scores per position, or numbers of tokens."""

    decoding: Decoding
    blank: int = 0
    end: int | None = None
    vocabulary: Vocabulary | None = None

    def texts(self, outputs: Outputs) -> list[Text | None]:
        """Return the text of each sample; None where scores are not usable."""
        classes = self.classes(outputs)
        if classes is None:
            return [self._text(each, None) for each in _ids(*only_output(outputs))]
        tokens = (top_tokens(each) for each in position_rows(outputs, "all"))
        return [None if (each == NONE).any() else self._text(each, classes) for each in tokens]

    def classes(self, outputs: Outputs) -> int | None:
        """Return how many tokens have a score; None if outputs are numbers of tokens."""
        if has_ids(outputs):
            return None
        classes = int(position_rows(outputs, "all")[0].shape[1])
        self._check(classes)
        return classes

    def named(self, tokens: np.ndarray, classes: int | None) -> Text:
        """Return the text of tokens as they are."""
        numbers = tuple(int(each) for each in tokens)
        if self.vocabulary is None:
            return numbers
        blank = self.blank if self.decoding == "ctc" else -1
        return self.vocabulary.text(numbers, classes, blank)

    def lengths(self, outputs: Outputs) -> list[int]:
        """Return how many positions of each sample count: those up to the end."""
        rows = position_rows(outputs, "all")
        if self.decoding == "ctc" or self.end is None:
            return [len(each) for each in rows]
        # The end itself counts: it is a choice of the model too.
        return [len(self._until_end(top_tokens(each))) + 1 for each in rows]

    def _text(self, tokens: np.ndarray, classes: int | None) -> Text:
        if self.decoding == "ctc":
            return self.named(_collapsed(tokens, self.blank), classes)
        return self.named(self._until_end(tokens), classes)

    def _until_end(self, tokens: np.ndarray) -> np.ndarray:
        found = np.flatnonzero(tokens == self.end)
        return tokens[: found[0]] if len(found) else tokens

    def _check(self, classes: int) -> None:
        wrong = {"blank": self.blank} if self.decoding == "ctc" else {"end": self.end or 0}
        for key, token in wrong.items():
            if token >= classes:
                raise ConfigError(
                    f"task.{key}={token} is none of the model's tokens: choose one from 0 to "
                    f"{classes - 1}."
                )


def has_ids(outputs: Outputs) -> bool:
    """Return whether the output is numbers of tokens."""
    _, entries = only_output(outputs)
    return np.asarray(entries[0]).dtype.kind in "iu"


def _ids(name: str, entries: Entries) -> list[np.ndarray]:
    """Return the numbers of each sample's tokens; negative ones are padding."""
    found = [np.asarray(each).squeeze() for each in entries]
    if any(each.ndim > 1 for each in found):
        raise misfit(
            name,
            entries,
            "task=text expects one row of tokens per sample, [positions], or their scores, "
            "[positions, tokens]. Choose another output with 'model.outputs=[...]'",
        )
    return [each[each >= 0] for each in (one.reshape(-1).astype(np.int64) for one in found)]


def _collapsed(tokens: np.ndarray, blank: int) -> np.ndarray:
    """Return the tokens of CTC without repetitions and blanks."""
    changes = np.diff(tokens, prepend=-2) != 0
    return np.asarray(tokens[changes & (tokens != blank)])
