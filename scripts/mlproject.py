"""Runs MLproject's entry points: turns MLflow's parameters into the words of seqto's commands.

MLflow quotes values for the shell, and adds those that MLproject does not name as `--key value`.
Values that Hydra cannot read, such as one that contains a quote, are quoted for Hydra.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

ROOT = Path(__file__).resolve().parent.parent
NOT_GIVEN = "/dev/null"
MODULES = {"promote": "seqto.promote", "report": "seqto.report"}


def command(entry_point: str, given: Mapping[str, str]) -> list[str]:
    """Return the module and the words that run this entry point with these parameters."""
    given = dict(given)
    if entry_point == "report":
        return [MODULES[entry_point], given["run"]]
    words = [*_model(given), *_data(given)]
    flags = [name for name in ("rollback", "dry_run") if given.pop(name, "false") == "true"]
    words += [word(name, value) for name, value in given.items()]
    if entry_point == "study":
        words.append("-m")
    spelled = {"rollback": "rollback", "dry_run": "--dry-run"}
    return [MODULES.get(entry_point, "seqto"), *words, *(spelled[flag] for flag in flags)]


def word(name: str, value: str) -> str:
    """Return `name=value` in Hydra's syntax, with the value in quotes if needed."""
    try:
        OverridesParser.create().parse_override(f"{name}={value}")
    except HydraException:
        return quoted(name, value)
    return f"{name}={value}"


def quoted(name: str, value: str) -> str:
    """Return `name='value'`, whatever the value contains."""
    return f"{name}={QuotedString(text=value, quote=Quote.single).with_quotes()}"


def _model(given: dict[str, str]) -> list[str]:
    path = given.pop("path", NOT_GIVEN)
    if path == NOT_GIVEN:
        return []
    given.pop("model", None)
    return ["model=local", quoted("model.path", path)]


def _data(given: dict[str, str]) -> list[str]:
    path = given.pop("data", NOT_GIVEN)
    if path == NOT_GIVEN:
        return []
    kind = given.pop("dataset", "npz" if path.endswith(".npz") else "images")
    return [f"dataset={kind}", quoted("dataset.path", path)]


def main() -> None:
    """Replace this process with the command."""
    entry_point, *rest = sys.argv[1:]
    pairs = zip(rest[::2], rest[1::2], strict=True)
    given = {name.removeprefix("--"): value for name, value in pairs}
    # This checkout and its plugin, not an older installed version.
    paths = [str(ROOT), str(ROOT / "seqto" / "_plugins"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    arguments = [sys.executable, "-m", *command(entry_point, given)]
    os.execve(sys.executable, arguments, environment)


if __name__ == "__main__":
    main()
