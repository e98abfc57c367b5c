"""What a command line leaves, and how tests run one."""

import contextlib
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pytest

from seqto.cli import main
from seqto.config import build


@dataclass(frozen=True)
class Result:
    """What a command left."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@contextlib.contextmanager
def command_in(folder: Path, cache: Path, migrated_store: Path) -> Iterator[Command]:
    """Yield the command line, run in this process and this folder, which gets an empty store."""
    if not (folder / "mlflow.db").exists():
        shutil.copy(migrated_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SEQTO_CACHE", str(cache))
        patch.setenv("COLUMNS", "200")
        for name in ("SEQTO_DEBUG", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        mlflow.set_tracking_uri(None)

        def run(*arguments: str) -> Result:
            # What a process keeps for its jobs would outlive the folder here.
            patch.setattr(build, "_last", None)
            patch.setattr(sys, "argv", ["seqto", *arguments])
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    main()
                    code = 0
                except SystemExit as end:
                    code = int(end.code or 0)
            return Result(code, out.getvalue(), err.getvalue())

        yield run
    mlflow.set_tracking_uri(None)
