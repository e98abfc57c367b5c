"""Values as they are written on the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

_BARE = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)
_SPECIAL = re.compile(r"[\\()\[\]{}:=, \t]")
_RESERVED = {"null", "true", "false", "nan", "inf"}


def word(key: str, value: Any) -> str:
    """Return the override that gives a key this value."""
    return f"{key}={written(value)}"


def written(value: Any) -> str:
    """Return a value in Hydra's syntax; names with special characters are quoted."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_name(name)}:{written(each)}' for name, each in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(written, value))}]"
    text = str(value)
    if _BARE.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    # Else OmegaConf would look for a key of this name.
    escaped = text.replace("${", "\\${")
    return QuotedString(text=escaped, quote=Quote.single).with_quotes()


def _name(key: Any) -> str:
    """Return a name in a mapping; Hydra takes no quotes there, but backslashes."""
    return _SPECIAL.sub(r"\\\g<0>", str(key))
