"""Texts that are read from outputs: speech, handwriting, translations."""

from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError
from seqto.metrics.decoding import Decoder, Decoding, Text, has_ids
from seqto.metrics.positions import TokenDivergence
from seqto.metrics.text_errors import (
    EditHarm,
    TextLoss,
    Words,
    corpus_bleu,
    error_rate,
    require_libraries,
)
from seqto.metrics.vocabulary import Vocabulary, read_vocabulary
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import check_count
from seqto.types import Estimate, Outputs, Targets, content_key


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class DecodedText:
    """Texts, decoded from scores per position (CTC or greedy) or from numbers of tokens."""

    name: str = "text"
    decoding: Decoding
    blank: Annotated[int, Field(ge=0)] = 0
    end: Annotated[int, Field(ge=0)] | None = None
    vocabulary: str | None = field(default=None, compare=False)
    space: str | None = None
    loss: Literal["cer", "bleu"] = "cer"
    words: Words = "13a"
    symbols_key: str = field(default="", init=False)
    """Identifies the vocabulary, wherever its file lies."""

    def __post_init__(self) -> None:
        require_libraries()
        self._vocabulary: Vocabulary | None = None
        if self.vocabulary is not None:
            self._vocabulary = read_vocabulary(self.vocabulary, self.space)
            content = [*self._vocabulary.symbols, self._vocabulary.tokenizer]
            self.symbols_key = content_key(content)

    @property
    def metric(self) -> Metric:
        """The character error rate, or one minus BLEU, against the float model's text."""
        return TextLoss(self._decoder, self.words, self.loss)

    @property
    def _decoder(self) -> Decoder:
        return Decoder(self.decoding, self.blank, self.end, self._vocabulary)

    def harm(self, reference: Outputs) -> Harm:
        """Return the KL divergence per position; of numbers of tokens, the share of edits."""
        if has_ids(reference):
            return EditHarm(reference, self._decoder)
        return TokenDivergence(reference, lengths=self._decoder.lengths(reference))

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return the error rates of characters and words, and BLEU.

        Without a vocabulary the numbers of tokens take the place of characters and of BLEU's
        words, and there is no error rate of words.
        """
        texts, classes = self._decoder.texts(outputs), self._decoder.classes(outputs)
        check_count(targets, len(texts))
        wanted = [self._target(each, classes) for each in targets]
        if not any(wanted):
            raise DatasetError("every target is an empty text: give the right texts, or none.")
        nothing: Text = () if self._vocabulary is None else ""
        found = [nothing if each is None else each for each in texts]
        figures = {"cer": error_rate(wanted, found)}
        if self._vocabulary is not None:
            split = ([str(text).split() for text in each] for each in (wanted, found))
            figures["wer"] = error_rate(*split)
        figures["bleu"] = corpus_bleu(wanted, found, self.words)
        return dict(sorted(figures.items(), key=lambda each: each[0] != self.loss))

    def _target(self, target: Any, classes: int | None) -> Text:
        """Return a sample's right text."""
        if isinstance(target, str | np.str_):
            if self._vocabulary is None:
                raise DatasetError(
                    f"a target is the text {str(target)[:40]!r}, but the model's tokens have no "
                    "names: give task.vocabulary=<file with one symbol per line, or a "
                    "tokenizer.json>, or targets that are numbers of tokens."
                )
            return str(target).strip()
        tokens = np.atleast_1d(np.asarray(target))
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise DatasetError(
                f"a target is {tokens.dtype} of the shape {list(tokens.shape)}, but task=text "
                "expects a text, or the numbers of its tokens."
            )
        return self._decoder.named(tokens, classes)
