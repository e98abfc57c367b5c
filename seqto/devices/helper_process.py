"""Work in a process of its own, so that a native crash, or a hang, ends that process only."""

import atexit
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from seqto.errors import DeviceError, SeqtoError
from seqto.graph.load import first_line

Result = TypeVar("Result")

State = dict[str, Any]
"""What a process keeps between the calls of one program."""

USES = 50
"""After so many programs a process is replaced: native code may leak."""

START_SECONDS = 120.0
"""How long a process may take to start; one that was taken for dead would only start again."""


class WorkerCrashError(Exception):
    """The process ended by itself."""


class WorkerTimeoutError(Exception):
    """The process took too long, and was ended."""


class Worker:
    """A process that calls functions for this one, as long as it lives."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self.uses = 0
        # What native code has to say before it dies; a pipe would have to be read all the time.
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seqto.devices.helper_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=child_environment(self.environment),
        )
        try:
            self.call(_ready, seconds=START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def call(self, function: Callable[..., Result], *arguments: Any, seconds: float) -> Result:
        """Return `function(state, *arguments)`, called over there; raise what it raises."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # A thread, as the pipes of Windows know no time limit.
        overdue = threading.Event()
        timer = threading.Timer(seconds, self._end, (overdue,))
        timer.daemon = True
        timer.start()
        try:
            pickle.dump((function, arguments), self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
            succeeded, answer = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._bury()
            if overdue.is_set():
                raise WorkerTimeoutError(f"no answer within {seconds:g} s") from None
            raise WorkerCrashError(self._last_words()) from None
        except BaseException:
            # Interrupted between a question and its answer, the two would no longer match.
            self.kill()
            raise
        finally:
            timer.cancel()
        if not succeeded:
            raise answer
        return answer  # type: ignore[no-any-return]

    def alive(self) -> bool:
        """Tell whether the process can be called."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._noise.close()

    def _end(self, overdue: threading.Event) -> None:
        overdue.set()
        self._process.kill()

    def _bury(self) -> None:
        """Wait until the process is gone, which no longer answers."""
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        """Return how the process ended, and what it said last."""
        code = self._process.wait()
        how = f"with exit code {code}"
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"its process ended {how}" + (f" ({first_line(said[-1])})" if said else "")


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that imports this package, with these variables."""
    # The package may be on this process's path only.
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **added}


def _ready(state: State) -> None:
    """Do nothing: the answer says that the process is there."""


def _forget(state: State) -> None:
    state.clear()
    # A session that lies in a cycle of objects would keep its device from others.
    gc.collect()


_idle: list[Worker] = []


def lease(environment: Mapping[str, str] | None = None) -> Worker:
    """Return a process with this environment, warm if there is one; give it back by `release`."""
    wanted = dict(environment or {})
    for worker in list(_idle):
        if worker.environment == wanted:
            _idle.remove(worker)
            if worker.alive():
                worker.uses += 1
                return worker
            worker.kill()
    return Worker(wanted)


def release(worker: Worker) -> None:
    """Take a process back for the next program, or end it if it is not fit for one."""
    try:
        if worker.alive() and worker.uses < USES:
            worker.call(_forget, seconds=10)
            _idle.append(worker)
            return
    except Exception:  # Whatever is wrong with it, another one is started when needed.
        pass
    worker.kill()


@atexit.register
def end_idle() -> None:
    """End the processes that wait for work."""
    while _idle:
        _idle.pop().kill()


def serve() -> None:
    """Answer the calls of the parent until it is gone."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Ctrl-C reaches the whole group: the parent decides what becomes of this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    state: State = {}
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = _answered(function, state, arguments)
        try:
            answers.write(answer)
            answers.flush()
        except BrokenPipeError:
            return


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, also where it is in a call that never ends."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answered(function: Callable[..., Any], state: State, arguments: tuple[Any, ...]) -> bytes:
    try:
        answer: tuple[bool, Any] = (True, function(state, *arguments))
    except SeqtoError as error:
        answer = (False, error)
    except Exception as error:
        # Errors of native libraries often do not pickle, or only where the library is.
        answer = (False, DeviceError(f"{type(error).__name__}: {first_line(error)}"))
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    serve()
