"""Removes what Hydra wrote for a command that failed before its work began."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path


def discard(folder: Path, names: Collection[str]) -> None:
    """Remove the folder and its empty parents if it holds nothing but these names."""
    folder = folder.absolute()
    if not folder.is_dir() or {each.name for each in folder.iterdir()} - set(names):
        return
    here = Path.cwd()
    # Never remove the folder that the command runs in.
    if folder == here or folder in here.parents:
        return
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    # A parent that is not empty has the results of other commands.
    with contextlib.suppress(OSError):
        folder.rmdir()
        for parent in folder.parents:
            if here not in parent.parents:
                break
            parent.rmdir()
