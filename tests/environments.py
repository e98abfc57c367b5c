"""Environments with other versions or packages than those that the tests themselves run in."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 240


class InstallError(Exception):
    """Packages that cannot be had here, or not in time."""


def environment(folder: Path, instead: Mapping[str, str]) -> Path:
    """Make an environment in which seqto runs, with other requirements in place of some.

    Return its Python. `instead` has the requirements by the names of the packages they replace.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    _run([*_installer(python), *required(instead)])
    _run([*_installer(python), "--no-deps", "--editable", str(ROOT)])
    return python


def required(instead: Mapping[str, str]) -> list[str]:
    """Return what seqto depends on, with other requirements in place of some."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {_name(each): each for each in project["dependencies"]}
    unknown = set(instead) - set(named)
    assert not unknown, f"seqto does not depend on {unknown}"
    return list({**named, **instead}.values())


def _name(requirement: str) -> str:
    return requirement.partition(">")[0].partition("<")[0].partition("!")[0].strip()


def _installer(python: Path) -> list[str]:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        return pip
    index = _setting("index-url")
    more = _setting("extra-index-url")
    where = [
        "--index-strategy",
        "unsafe-best-match",
        *(["--default-index", index] if index else []),
    ]
    where += [word for each in more.split() for word in ("--index", each)]
    where += [word for each in _setting("find-links").split() for word in ("--find-links", each)]
    return [str(uv), "pip", "install", "--quiet", *where, "--python", str(python)]


def _setting(name: str) -> str:
    """Return one of pip's settings, which uv does not read."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    pairs = [line.partition("=")[::2] for line in listed.splitlines()]
    found = [value.strip("'") for key, value in pairs if key.endswith(f".{name}")]
    return found[-1].replace("\\n", " ").strip() if found else ""


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise InstallError(f"not downloaded within {SECONDS} s") from None
    if done.returncode:
        raise InstallError(done.stderr.strip()[-300:])
