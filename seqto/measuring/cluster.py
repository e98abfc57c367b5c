"""Candidates measured by the machines of a ray cluster; this process records them.

This is the only module that knows ray. The study's content is put into ray's object store once, and
each task gets a few bytes a candidate. What a lost machine was measuring runs again elsewhere.
"""

import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from seqto.errors import ConfigError, MetricError, SeqtoError, StudyError
from seqto.graph.load import first_line
from seqto.measuring.batch import Attempt, Tools
from seqto.measuring.kit import Kit, measure_ordered
from seqto.measuring.pool import groups_of
from seqto.measuring.provenance import machine_of
from seqto.measuring.record import Assignment, Recorder, yardstick_of
from seqto.measuring.subject import Subject
from seqto.protocols import TrialLog

Options = Mapping[str, Any]

_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 10.0
_JOINS = 4
"""A head gives up a driver's server that takes longer than 30 seconds to start."""
_PATIENCE_SECONDS = 600.0
"""How long to wait for a cluster without a core to run on."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def connected(init: Options) -> Iterator[None]:
    """Be part of the ray cluster at this address within the block, or start one of processes here.

    `init` has the arguments of `ray.init`.
    """
    # Before the import. Nothing is reported to anybody.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    given = {name: value for name, value in init.items() if value is not None}
    if str(given.get("address", "")).startswith("ray://") and _has_token():
        # A head that has a token asks for it; from outside ray only sends it if told to.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    try:
        _check_answers(str(given.get("address", "")))
        with _own_signals():
            _join(given)
    except Exception as error:  # From ray, gRPC or the system.
        raise ConfigError(
            f"ray cannot be joined at {given.get('address', 'this machine')} "
            f"({_cause(error)}): start it with `ray start --head`, and check "
            "hydra.launcher.ray.init.address, that ray and Python are the same versions there, and "
            "that this machine has the head's token (`ray get-auth-token` there, RAY_AUTH_TOKEN "
            "here) if it asks for one."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _has_token() -> bool:
    """Return whether ray would find a token where it looks for one."""
    if os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        return True
    return Path.home().joinpath(".ray", "auth_token").exists()


def _join(given: Options) -> None:
    """Call `ray.init`, again where a busy head did not start this driver's server in time."""
    import ray

    for left in reversed(range(_JOINS)):
        try:
            ray.init(**given)
        except ConnectionAbortedError as error:
            if not left:
                raise
            _log.warning("ray's head is busy (%s): it is asked again", _cause(error))
        else:
            return


def _cause(error: Exception) -> str:
    """Return what an error says; ray's own puts a traceback first and the cause last."""
    lines = str(error).strip().splitlines()
    said = lines[-1] if isinstance(error, ConnectionAbortedError) and lines else error
    return first_line(said).rstrip(".")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handlers of signals: with ray's own, SIGTERM would leave trials open."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.getsignal(each) for each in numbers}
    yield
    if threading.current_thread() is threading.main_thread():
        for each, handler in before.items():
            signal.signal(each, handler)


def _check_answers(address: str) -> None:
    """Raise OSError if nobody answers at an address with a port: ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()


@dataclass(frozen=True)
class Errand:
    """Assignments that run as one task, their open trials, and how often they were begun."""

    group: Sequence[Assignment]
    trials: Sequence[str]
    begun: int = 1


class Cluster:
    """Measures candidates by tasks of the ray cluster that this process is connected to.

    A candidate whose machine or process is lost is begun at most `tries` times. `remote` has the
    arguments of `ray.remote`. If latency counts (`timed`), only one kind of machine may measure.
    """

    def __init__(
        self,
        tools: Tools,
        subject: Subject,
        log: TrialLog,
        tries: int,
        remote: Options,
        timed: bool = False,
    ) -> None:
        import ray

        self._ray = ray
        self._device, self._log, self._tries, self._timed = tools.device, log, tries, timed
        self._yardstick = functools.cache(lambda study: yardstick_of(log, study))
        self._cores = float(remote.get("num_cpus") or 1)
        # Retries are counted here, where it is known what was lost.
        self._task: Any = ray.remote(**remote, max_retries=0)(measure_ordered)
        _send_own_code(tools, subject)
        self._kit = Kit.of(tools, subject)
        self._sent = ray.put(self._kit)

    def launch(self, study: str | None, assignments: Sequence[Assignment]) -> Iterator[str]:
        """Yield the ids of these assignments' trials, each when it ends."""
        device, of = self._device, self._yardstick(study)
        recorder = Recorder(self._log, study, device.name, machine_of(device), of)
        running: dict[Any, Errand] = {}
        try:
            with recorder.open_trials():
                yield from self._measured(assignments, recorder, running)
        finally:
            for task in running:
                with contextlib.suppress(Exception):  # The cluster may be gone.
                    self._ray.cancel(task, force=True)

    def _measured(
        self, assignments: Sequence[Assignment], recorder: Recorder, running: dict[Any, Errand]
    ) -> Iterator[str]:
        new = deque(groups_of(assignments, self._room()))
        again = deque[Errand]()
        while new or again or running:
            # Twice as many as run, so that no machine waits for this process.
            while (new or again) and len(running) < 2 * self._room():
                turn = again.popleft() if again else _begun(new.popleft(), recorder)
                running[self._submitted(turn, recorder.yardstick.machine)] = turn
            task = self._next(list(running))
            turn = running.pop(task)
            made = self._result(task, turn, again)
            for trial, each, attempt in zip(turn.trials, turn.group, made, strict=False):
                recorder.end(trial, each, attempt)
                yield trial

    def _submitted(self, turn: Errand, timed_on: str) -> Any:
        orders = [self._kit.order(each.candidate) for each in turn.group]
        return self._task.remote(self._sent, orders, timed_on if self._timed else "")

    def _next(self, tasks: list[Any]) -> Any:
        """Return a task that ended; tell if there is no machine to run any."""
        begin = time.monotonic()
        told = False
        while True:
            ended, _ = self._ray.wait(tasks, num_returns=1, timeout=_LOOK_SECONDS)
            if ended:
                return ended[0]
            if self._all_cores() >= self._cores:
                begin = time.monotonic()
            elif time.monotonic() - begin > _PATIENCE_SECONDS:
                raise StudyError(
                    f"the ray cluster has no machine with {self._cores:g} cores, and got none in "
                    f"{_PATIENCE_SECONDS / 60:.0f} minutes: add one with `ray start --address`, or "
                    "change hydra.launcher.ray.remote.num_cpus. The same command goes on then."
                )
            elif not told:
                told = True
                _log.warning("The ray cluster has no machine to run on: waiting for one.")

    def _result(self, task: Any, turn: Errand, again: deque[Errand]) -> list[Attempt]:
        """Return the attempts of a task; if its machine was lost, none or failures."""
        failures = self._ray.exceptions
        try:
            return list(self._ray.get(task))
        except failures.RayTaskError as error:
            raise _told(error) from error
        except failures.RayError as error:
            return self._lost(turn, error, again)

    def _lost(self, turn: Errand, error: Exception, again: deque[Errand]) -> list[Attempt]:
        """Begin the candidates of a lost task again, each by itself, unless they were too often."""
        # The further sentences say where ray's own logs are.
        why = f"{type(error).__name__}: {first_line(error).partition('. ')[0]}"
        if isinstance(error, self._ray.exceptions.ObjectLostError):
            self._sent = self._ray.put(self._kit)
        if turn.begun >= self._tries:
            failure = f"Lost: begun {turn.begun} times, and its process or machine was lost ({why})"
            return [Attempt(failure=failure)] * len(turn.group)
        _log.warning(
            "The process or machine that measured candidate %s was lost (%s): it runs again.",
            *(", ".join(str(each.index) for each in turn.group), why),
        )
        for each, trial in zip(turn.group, turn.trials, strict=True):
            again.append(Errand([each], [trial], turn.begun + 1))
        return []

    def _room(self) -> int:
        """Return how many tasks can run at once now."""
        return max(1, int(self._all_cores() // self._cores))

    def _all_cores(self) -> float:
        return float(self._ray.cluster_resources().get("CPU", 0))


def _begun(group: Sequence[Assignment], recorder: Recorder) -> Errand:
    return Errand(group, [recorder.start(each) for each in group])


def _told(error: Any) -> SeqtoError:
    """Return what a task raised, as an error of this process."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, MetricError):
        return cause
    if isinstance(cause, SeqtoError):
        return StudyError(f"a machine of the ray cluster refused: {cause}")
    return StudyError(
        f"a machine of the ray cluster cannot run the study ({type(cause).__name__}: "
        f"{first_line(cause)}): install there what is installed here, seqto included."
    )


def _send_own_code(tools: Tools, subject: Subject) -> None:
    """Send users' own classes and functions with the objects: other machines have no such files."""
    from ray import cloudpickle

    for part in (tools.device, tools.quantizer, subject.task, subject.metric):
        for value in (part, *vars(part).values()):
            owner = value if callable(value) else type(value)
            module = sys.modules.get(getattr(owner, "__module__", "") or "")
            if module is not None and _is_own(module):
                cloudpickle.register_pickle_by_value(module)


def _is_own(module: ModuleType) -> bool:
    """Tell whether a module is the user's: no installed one, none of Python's, not seqto."""
    if module.__name__.partition(".")[0] in ("seqto", "__main__", *sys.stdlib_module_names):
        return False
    path = getattr(module, "__file__", None)
    installed = {"site-packages", "dist-packages"}
    return path is not None and not installed & set(Path(path).parts)
