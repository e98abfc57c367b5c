"""Secrets: what they are, and how they are kept out of all that is written, logged or printed.

This is the one place that knows them. It finds them in three ways: by the form of an address
(`scheme://user:password@host`, `?token=...`), by the name that a value has (`password`, `api_key`,
...), and by the value itself, once a config that has it was seen.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"
"""What stands where a secret was."""

_CERTAIN = ("password", "passwd", "passphrase", "secret", "credential")
_OPENED_BY_KEYS = {"access", "account", "api", "auth", "private", "sas", "storage"}
"""Words that make a `key` a secret; a study's or a candidate's key is none."""
_OF_VOCABULARIES = {"bos", "cls", "eos", "mask", "pad", "sep", "unk", "special"}
"""Words that make a `token` a word of a text."""

_LEAST_KNOWN = 8
"""Shorter secrets are found by form and name only: replaced everywhere, they would garble texts."""

# Databases take a slash in a password; in an address of the web it would end the host.
_WEB_USER = re.compile(r"(https?://)[^/?#\s'\"<>]*@")
_OTHER_USER = re.compile(
    r"(?<![\w+.-])((?!https?:)[a-z][\w+.-]*://)(?:[^/@\s]*|[^:/@\s]*:[^@\s]*)@"
)
_QUERY = re.compile(r"([?&](?:X-Amz-)?sig(?:nature)?=)[^&\s'\"<>]+", re.IGNORECASE)
_HEADER = re.compile(r"\b(Bearer|Basic) [\w.~+/=-]{8,}")
_PAIR = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)(?P<sign>["']?\s*(?:=|:(?!/))\s*)"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s,;&}\])"']+)"""
)

_known: set[str] = set()


def is_secret(name: str, value: object, parent: str = "") -> bool:
    """Tell whether the value of this name, below a key of that name, is a secret."""
    if any(each in name.lower() for each in _CERTAIN):
        # YAML makes a number of a password of digits.
        return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    return isinstance(value, str) and value != "" and _opens(name, parent)


def _opens(name: str, parent: str) -> bool:
    """Tell whether a name is that of a token or key to something, and not of a tensor's."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    if not words:
        return False
    if words[-1].endswith("token"):
        return not _OF_VOCABULARIES & set(words)
    if words[-1].endswith(("apikey", "accesskey")):
        return True
    keys = words[-1] == "key" or words[-2:] == ["key", "id"]
    return keys and ("storage" in parent.lower() or bool(_OPENED_BY_KEYS & set(words)))


def masked(text: str) -> str:
    """Return the text without the secrets in it."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    return masked_by_form(text)


def masked_by_form(text: str) -> str:
    """Return the same in every process, whatever secrets it has seen."""
    text = _WEB_USER.sub(rf"\1{MASK}@", text)
    text = _OTHER_USER.sub(rf"\1{MASK}@", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(rf"\1 {MASK}", text)
    return _PAIR.sub(_without_value, text)


def masked_word(word: str) -> str:
    """Return an override of the command line without the secret that it sets."""
    key, _, value = word.partition("=")
    return f"{key}={MASK}" if is_secret(*_last(key.lstrip("+~"), value)) else masked(word)


def masked_values(values: Any, parent: str = "") -> Any:
    """Return nested dicts and lists of plain values without the secrets in them."""
    if isinstance(values, Mapping):
        return {
            name: MASK if is_secret(str(name), each, parent) else masked_values(each, str(name))
            for name, each in values.items()
        }
    if isinstance(values, list | tuple):
        return [masked_values(each, parent) for each in values]
    return masked_word(values) if isinstance(values, str) else values


def remember_secrets(values: Any) -> None:
    """Mask the secrets in these nested values from now on, wherever they turn up in a text."""
    _known.update(each for each in _secrets_in(values, "") if len(each) >= _LEAST_KNOWN)


def mask_error(error: BaseException) -> None:
    """Take the secrets out of the messages of an error and of what caused it."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        each.args = tuple(masked(arg) if isinstance(arg, str) else arg for arg in each.args)
        seen.append(each)
        each = each.__cause__ or each.__context__


def without_user(address: str) -> str:
    """Return an address without user and password: a browser asks for them."""
    return _WEB_USER.sub(r"\1", address)


def _without_value(found: re.Match[str]) -> str:
    hidden = is_secret(*_last(found["name"], found["value"].strip("\"'")))
    return f"{found['name']}{found['sign']}{MASK}" if hidden else found[0]


def _last(key: str, value: str) -> tuple[str, str, str]:
    """Return the last name of a dotted key, the value, and the name above."""
    above, _, name = key.rpartition(".")
    return name, value, above.rpartition(".")[2]


def _secrets_in(values: Any, parent: str) -> Iterator[str]:
    if isinstance(values, Mapping):
        for name, each in values.items():
            if is_secret(str(name), each, parent):
                yield str(each)
            yield from _secrets_in(each, str(name))
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _secrets_in(each, parent)
    elif isinstance(values, str):
        key, _, value = values.partition("=")
        if is_secret(*_last(key.lstrip("+~"), value)):
            yield value.strip("\"'")
        for user in re.findall(r"://([^/?#\s'\"<>]*)@", values):
            password = user.partition(":")[2]
            yield from (password, unquote(password))
