"""What Hydra has written of a command before its work could begin."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path


def discard(folder: Path, names: Collection[str]) -> None:
    """Remove these from the folder, and it with its empty parents, where it has nothing else."""
    folder = folder.absolute()
    if not folder.is_dir() or {each.name for each in folder.iterdir()} - set(names):
        return
    here = Path.cwd()
    # The folder that the command is run in is not its own.
    if folder == here or folder in here.parents:
        return
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    # Not empty: there are the results of other commands.
    with contextlib.suppress(OSError):
        folder.rmdir()
        for parent in folder.parents:
            if here not in parent.parents:
                break
            parent.rmdir()
