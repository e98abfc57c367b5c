"""Commands in processes of their own that need not import everything again.

They are forked from a process that has imported what a study needs, and has run nothing: it costs
about 5 CPU seconds once, where `python -m seqto` pays them each time.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_IMPORTED = [
    *("mlflow.onnx", "mlflow.server", "onnxruntime.quantization", "pymoo.indicators.hv"),
    *("sklearn.datasets", "scipy.optimize", "scipy.stats", "matplotlib.pyplot"),
    *("seqto.cli.entry", "seqto.cli.study_command", "seqto.cli.candidate_command"),
    *("seqto.cli.promoting", "seqto.cli.reporting", "seqto.tracking.mlflow"),
    *("seqto.report.study_page", "seqto.quantizers.static", "seqto.quantizers.dynamic"),
    *("seqto.datasets.digits", "seqto.sensitivity.paper", "seqto.sensitivity.divergence"),
    *("seqto.search.ladder", "seqto.search.budget", "seqto.devices.onnxruntime"),
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_IMPORTED)


class Forked:
    """`python -m <module>` in this folder, with the methods of `subprocess.Popen`.

    Not for hydra/launcher=joblib, whose workers only end with a whole interpreter: see `Whole`.
    """

    def __init__(self, words: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryDirectory()
        files = [str(Path(self._said.name) / name) for name in ("out", "err")]
        self._files = files
        self._process = _context.Process(target=_become, args=(words, cwd, dict(env), files))
        self._process.start()
        self.args = words

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return what it said; a process that is too slow is killed."""
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        out, err = (Path(each).read_text() for each in self._files)
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Whole(subprocess.Popen[str]):
    """The same in an interpreter of its own."""

    def __init__(self, words: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        path = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        super().__init__(
            [sys.executable, "-m", *words],
            cwd=cwd,
            env={**env, **path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _become(words: list[str], cwd: Path, env: dict[str, str], files: list[str]) -> None:
    """Go on as the command, in this process, which is the fork."""
    for number, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    module, *rest = words
    sys.argv = [module, *rest]
    # As `python -m` does.
    runpy.run_module(module, run_name="__main__", alter_sys=True)
