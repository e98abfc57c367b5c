"""Tab completion: Hydra completes groups, keys and choices; this adds what Hydra does not see."""

import os
from collections.abc import Sequence

from seqto.cli.config_dirs import config_dir

COMMANDS = ("study", "candidate", "promote", "report", "compare")
"""What may be the first word behind `seqto`."""

_WITH_CONFIG = ("study", "candidate", "promote")
"""The commands whose words are those of the config."""

_LINE = "COMP_LINE"
"""The environment variable in which shells hand over the line so far."""


def prepared(words: Sequence[str]) -> list[str]:
    """Return the words for Hydra; if they ask for completions, with the line's own config folder.

    Hydra's shell functions call the program without the options that are on the line.
    """
    if not any(word.startswith("query=") for word in words) or _LINE not in os.environ:
        return list(words)
    program, _, rest = os.environ[_LINE].partition(" ")
    typed = rest.split()
    begun = typed if rest.endswith(" ") else typed[:-1]
    if not begun:
        start = typed[0] if typed else ""
        print(" ".join(each for each in COMMANDS if each.startswith(start)))
    elif begun[0] in _WITH_CONFIG:
        os.environ[_LINE] = f"{program} {rest.lstrip().removeprefix(begun[0]).lstrip()}"
    folder = config_dir(begun)
    return [*words, *(["--config-dir", str(folder)] if folder and folder.is_dir() else [])]
