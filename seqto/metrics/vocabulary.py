"""What the tokens of a model are called."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError

_NUMBERED = re.compile(r"(\S+)[ \t]+(\d+)")
"""A line of a vocabulary that has the token's number behind its symbol."""

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The symbols of tokens, from a text file; or a tokenizer, as the text of its JSON file."""

    path: str
    symbols: tuple[str, ...] = ()
    tokenizer: str = ""
    space: str | None = None
    """The symbol that stands for a space."""

    def text(self, tokens: Sequence[int], classes: int | None = None, blank: int = -1) -> str:
        """Return the text of tokens.

        With the number of the model's classes, a vocabulary that leaves out the blank of CTC is
        recognised by its length.
        """
        if self.tokenizer:
            return str(_tokenizer(self.tokenizer).decode(list(tokens), skip_special_tokens=True))
        symbols = self._numbered(classes, blank)
        found = [symbols[each] if 0 <= each < len(symbols) else _UNKNOWN for each in tokens]
        spaced = [" " if each == self.space else each for each in found]
        # SentencePiece writes a space like this.
        return "".join(spaced).replace("\N{LOWER ONE EIGHTH BLOCK}", " ").strip()

    def _numbered(self, classes: int | None, blank: int) -> Sequence[str]:
        """Return the symbols by the model's numbers of its tokens."""
        missing = (classes or len(self.symbols)) - len(self.symbols)
        if missing == 0 or (missing > 0 and blank < 0):
            return self.symbols
        if missing in (1, 2):
            # PaddleOCR's files have neither the blank nor, at the end, the space.
            symbols = [*self.symbols, *[" "] * (missing - 1)]
            return [*symbols[:blank], "", *symbols[blank:]]
        raise ConfigError(
            f"task.vocabulary={self.path} has {len(self.symbols)} symbols, but the model has "
            f"{classes} tokens: give the file that belongs to it, with one symbol per line (the "
            "blank of CTC may be left out)."
        )


def read_vocabulary(path: str, space: str | None) -> Vocabulary:
    """Return the vocabulary in a text file, or in a tokenizer.json."""
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"task.vocabulary={path} cannot be read ({error}): give a text file with one symbol "
            "per line, or a tokenizer.json."
        ) from error
    if file.suffix == ".json":
        return Vocabulary(path, tokenizer=_checked(path, content), space=space)
    return Vocabulary(path, symbols=_symbols(content), space=space)


def _symbols(content: str) -> tuple[str, ...]:
    """Return one symbol per line, in the order of the numbers if there are some."""
    # Not splitlines: it takes symbols such as a form feed for ends of lines.
    lines = [line.rstrip("\r") for line in content.removesuffix("\n").split("\n")]
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    pairs = [(int(each[2]), each[1]) for each in numbered if each]
    if len(pairs) == len(lines) and {number for number, _ in pairs} == set(range(len(lines))):
        return tuple(symbol for _, symbol in sorted(pairs))
    return tuple(lines)


def _checked(path: str, content: str) -> str:
    try:
        _tokenizer(content)
    except ImportError as error:
        raise ConfigError(
            "a tokenizer.json needs the tokenizers library, which is not installed: "
            "pip install 'seqto[text]' (in a checkout '.[text]')."
        ) from error
    except Exception as error:  # The library has no class of its own for errors.
        raise ConfigError(
            f"task.vocabulary={path} cannot be read as a tokenizer ({error}): give the "
            "tokenizer.json that was published with the model."
        ) from error
    return content


@functools.lru_cache(maxsize=2)
def _tokenizer(content: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content)
