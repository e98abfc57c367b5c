"""Work in a separate process, so that a native crash or a hang ends only that process."""

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
"""What a worker keeps between the calls of one program."""

USES = 50
"""A worker is replaced after this many programs, because native code may leak."""

START_SECONDS = 120.0
"""How long a worker may take to start; giving up early would only start another one."""


class WorkerCrashError(Exception):
    """The process ended by itself."""


class WorkerTimeoutError(Exception):
    """The process took too long, and was killed."""


class Worker:
    """A process that calls functions on behalf of this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self.uses = 0
        # What native code prints before it dies; a pipe would have to be read all the time.
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
        """Return `function(state, *arguments)`, called in the worker; raise what it raises."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # A thread, because reading a pipe has no timeout on Windows.
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
            # After an interrupt between call and answer, the next answer would be the wrong one.
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
        """Wait until the process, which no longer answers, is gone."""
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        """Return how the process ended, and the last line that it printed."""
        code = self._process.wait()
        how = f"with exit code {code}"
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"its process ended {how}" + (f" ({first_line(said[-1])})" if said else "")


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that can import this package, plus these variables."""
    # The package may only be on this process's path.
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **added}


def _ready(state: State) -> None:
    """Do nothing: the answer shows that the process runs."""


def _forget(state: State) -> None:
    state.clear()
    # A session in a reference cycle would keep its device busy.
    gc.collect()


_idle: list[Worker] = []


def lease(environment: Mapping[str, str] | None = None) -> Worker:
    """Return a worker with this environment, an idle one if possible; see `release`."""
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
    """Keep a leased worker for the next program, or kill it if it is unusable or worn out."""
    try:
        if worker.alive() and worker.uses < USES:
            worker.call(_forget, seconds=10)
            _idle.append(worker)
            return
    except Exception:  # Whatever is wrong, a new one starts when needed.
        pass
    worker.kill()


@atexit.register
def end_idle() -> None:
    """Kill the idle workers."""
    while _idle:
        _idle.pop().kill()


def serve() -> None:
    """Answer the calls of the parent until it is gone."""
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Ctrl-C reaches the whole process group, but the parent decides about this process.
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
    """End this process when its parent is gone, even during a call that hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answered(function: Callable[..., Any], state: State, arguments: tuple[Any, ...]) -> bytes:
    try:
        answer: tuple[bool, Any] = (True, function(state, *arguments))
    except SeqtoError as error:
        answer = (False, error)
    except Exception as error:
        # Errors of native libraries often cannot be pickled, or need the library to unpickle.
        answer = (False, DeviceError(f"{type(error).__name__}: {first_line(error)}"))
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    serve()
