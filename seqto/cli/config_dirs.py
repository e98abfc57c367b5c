"""A user's own folder of configs, as Hydra takes it: --config-dir mine."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqto.config.paths import CONF

_FLAGS = ("--config-dir", "-cd")


def config_dir(words: Sequence[str]) -> Path | None:
    """Return the folder that these words of a command line name, if they do."""
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in _FLAGS and equals:
            return Path(value)
        if word in _FLAGS and at + 1 < len(words):
            return Path(words[at + 1])
    return None


def without_config_dir(words: Sequence[str]) -> list[str]:
    """Return the words without the flag and its folder."""
    left: list[str] = []
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word in _FLAGS:
            skipped = True
        elif word.partition("=")[0] not in _FLAGS:
            left.append(word)
    return left


def choices(group: str, own: Path | None = None) -> Iterator[Path]:
    """Yield the configs of a group by name: seqto's, and those of the user's own folder.

    Where both have one of the same name, Hydra takes seqto's.
    """
    found = {path.stem: path for path in _files(own, group)}
    found |= {path.stem: path for path in _files(CONF, group)}
    yield from (found[name] for name in sorted(found))


def _files(folder: Path | None, group: str) -> list[Path]:
    return list((folder / group).glob("*.yaml")) if folder else []
