"""How far texts are apart."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from seqto.errors import ConfigError
from seqto.metrics.decoding import Decoder, Text
from seqto.metrics.harm import UNUSABLE
from seqto.metrics.intervals import bootstrap
from seqto.types import Estimate, Outputs

Words = Literal["13a", "intl", "zh", "char", "none"]
"""How BLEU finds words: names of sacrebleu."""

# What jiwer counts with; without jiwer, because it takes no lists of tokens.
_LIBRARIES = ("rapidfuzz", "sacrebleu")


@dataclass
class TextLoss:
    """How far each text is from the float model's: by characters (cer), or by words (bleu)."""

    decoder: Decoder
    words: Words = "13a"
    name: str = "cer"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the loss of each sample, at most 1."""
        pairs = zip(self.decoder.texts(reference), self.decoder.texts(outputs), strict=True)
        return np.array([min(self._loss(*each), 1.0) for each in pairs])

    def _loss(self, wanted: Text | None, found: Text | None) -> float:
        if wanted is None or wanted == found:
            return 0.0
        if found is None:
            return 1.0
        if self.name == "cer":
            return _share_of_edits(wanted, found)
        return max(0.0, 1 - float(_compared(wanted, found, self.words).score) / 100)


class EditHarm:
    """How many tokens or characters have to be changed, as a share of the float model's text."""

    name = "cer"

    def __init__(self, reference: Outputs, decoder: Decoder) -> None:
        self._decoder = decoder
        self._reference = decoder.texts(reference)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the share of each sample."""
        pairs = zip(self._reference, self._decoder.texts(outputs), strict=False)
        return np.array([_share_of_edits(one or "", two or "") for one, two in pairs])


def require_libraries() -> None:
    """Refuse to begin without the libraries that compare texts."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"task=text needs {' and '.join(missing)}, which is not installed: "
            "pip install 'seqto[text]' (in a checkout '.[text]')."
        )


def edits(wanted: Sequence[Any], found: Sequence[Any]) -> int:
    """Return how many insertions, deletions and substitutions lead from one to the other."""
    from rapidfuzz.distance import Levenshtein

    return int(Levenshtein.distance(wanted, found))


def _share_of_edits(wanted: Text, found: Text) -> float:
    return min(edits(wanted, found) / max(len(wanted), 1), UNUSABLE)


def error_rate(wanted: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> Estimate:
    """Return all edits as a share of the length of all right texts."""
    counts = np.array([edits(*each) for each in zip(wanted, found, strict=True)])
    lengths = np.array([len(each) for each in wanted])

    def statistic(indices: np.ndarray) -> float:
        total = lengths[indices].sum()
        return float(counts[indices].sum() / total) if total else float("nan")

    return bootstrap(statistic, len(counts))


def corpus_bleu(wanted: Sequence[Text], found: Sequence[Text], words: Words) -> Estimate:
    """Return the BLEU of all texts, from 0 to 1."""
    from sacrebleu.metrics import BLEU

    each = [_compared(*pair, words) for pair in zip(wanted, found, strict=True)]
    # Counted once per text, and added up in each of the resamples.
    counts = np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in each])

    def statistic(indices: np.ndarray) -> float:
        total = [int(count) for count in counts[indices].sum(axis=0)]
        # Where no text has four words, BLEU of shorter phrases counts: else all would be 0.
        lengths = {"sys_len": total[8], "ref_len": total[9]}
        found = BLEU.compute_bleu(
            total[:4], total[4:8], **lengths, smooth_method="exp", effective_order=True
        )
        return min(float(found.score) / 100, 1.0)

    return bootstrap(statistic, len(counts))


def _compared(wanted: Text, found: Text, words: Words) -> Any:
    """Return sacrebleu's score of one text."""
    from sacrebleu.metrics import BLEU

    numbers = not isinstance(wanted, str)
    bleu = BLEU(tokenize="none" if numbers else words, effective_order=True)
    return bleu.sentence_score(_as_words(found), [_as_words(wanted)])


def _as_words(text: Text) -> str:
    return text if isinstance(text, str) else " ".join(map(str, text))
