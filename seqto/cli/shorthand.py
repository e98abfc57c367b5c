"""`seqto my.onnx photos/`: a study of one's own model, in two words."""

import shlex
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from seqto.config.own_files import SAMPLES, model_words, sample_words, tokenizer_words
from seqto.errors import ConfigError, DatasetError, ModelError

_MODES = {"-m", "--multirun", "-c", "--cfg", "-r", "--run", "-i", "--info"}
"""Hydra's options that exclude each other."""


def model_alone(words: Sequence[str]) -> str | None:
    """Return the model's file if it is all that was typed."""
    if len(words) != 1 or not _is_model(words[0]):
        return None
    _require_model(words[0])
    return words[0]


def expanded(words: Sequence[str]) -> list[str]:
    """Return the words with files in their full form; others are unchanged.

    A model's file makes it a study, unless an option or `candidate.*` says otherwise.
    """
    # What follows an option may be its value.
    plain = [each for each in takewhile(_is_no_option, words) if "=" not in each]
    models = [each for each in plain if _is_model(each)]
    if not models:
        return list(words)
    samples = [each for each in plain if not _is_model(each)]
    _check(models, samples, words)
    files = _words_of(models[0], samples, words)
    rest = [each for each in words if each not in plain]
    single = any(each.lstrip("+").startswith("candidate.") for each in rest)
    full = [*files, *rest, *([] if single or _MODES & set(rest) else ["-m"])]
    # What is recorded, and what a report repeats, is this.
    print(f"seqto {shlex.join(full)}", file=sys.stderr)
    return full


def _words_of(model: str, samples: Sequence[str], words: Sequence[str]) -> list[str]:
    found = [*model_words(model), *(each for path in samples for each in sample_words(path))]
    if "dataset=images" in found and not any(each.startswith("preprocess") for each in words):
        # Said, because it is a guess: a wrong one spoils all figures.
        found.append("preprocess=imagenet")
    if "dataset=text" in found and not any("dataset.tokenizer" in each for each in words):
        found += tokenizer_words(model)
    return found


def _check(models: Sequence[str], samples: Sequence[str], words: Sequence[str]) -> None:
    """Raise where files are missing, do not exist, or are too many."""
    for kind, found in (("models", models), ("samples", samples)):
        if len(found) > 1:
            raise ConfigError(
                f"{' and '.join(found)} cannot both be {kind}: give one model and {SAMPLES}."
            )
    _require_model(models[0])
    named = any(each.lstrip("+").startswith(("dataset=", "dataset.")) for each in words)
    if not samples and not named:
        raise ConfigError(
            f"there are no samples for {models[0]}: add {SAMPLES}. seqto {models[0]} alone tells "
            "what it takes."
        )
    for each in samples:
        if not Path(each).expanduser().exists():
            raise DatasetError(f"{each} does not exist: give {SAMPLES}.")


def _require_model(path: str) -> None:
    if not Path(path).expanduser().exists():
        raise ModelError(f"{path} does not exist: check the path of the model.")


def _is_no_option(word: str) -> bool:
    return not word.startswith("-")


def _is_model(word: str) -> bool:
    return word.endswith(".onnx") and "=" not in word
