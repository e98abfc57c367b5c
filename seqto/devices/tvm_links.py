"""Links to a compiled candidate: in a worker on this machine, or behind an RPC tracker.

A link calls functions of `tvm_run` where the candidate is. A remote link opens a new session when
the old one is lost, stalls or crashes, and repeats the call; earlier results are kept.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from seqto.devices import tvm_run, tvm_tracker
from seqto.devices.helper_process import (
    Worker,
    WorkerCrashError,
    WorkerTimeoutError,
    lease,
    release,
)
from seqto.devices.loading import is_watched, note
from seqto.errors import (
    DeviceError,
    DeviceRunError,
    DeviceTimeoutError,
    DeviceTransportError,
    DeviceUnreachableError,
)

Result = TypeVar("Result")

SESSION_SECONDS = 30.0
"""How long opening a session, and sending a library, may take."""

LONGEST_PAUSE = 30.0
"""Pauses between two attempts grow up to this many seconds."""

POLL_SECONDS = 0.2
"""How often the tracker is asked for a free device."""

SILENT_SECONDS = 5.0
"""Who waits longer than this for somebody else's device is told what to do."""

_LOST = (WorkerCrashError, WorkerTimeoutError, DeviceTransportError)

_log = logging.getLogger(__name__)


class Link(Protocol):
    """A connection to a candidate."""

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Return `function(state, *arguments)`, called where the candidate is."""
        ...

    def close(self) -> None:
        """Release what the link holds."""
        ...


@dataclass
class LocalLink:
    """A candidate in a worker on this machine."""

    name: str
    kind: str
    path: Path
    seconds: float
    environment: dict[str, str]

    def __post_init__(self) -> None:
        """Load the candidate."""
        self._worker: Worker | None = lease(self.environment)
        note(self.call(tvm_run.open_library, self.name, self.kind, self.path, is_watched()))

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the worker; a failure is not retried."""
        if self._worker is None:
            raise DeviceRunError(f"{self.name} cannot run it: it was closed")
        try:
            return self._worker.call(function, *arguments, seconds=self.seconds)
        except WorkerCrashError as error:
            raise DeviceRunError(f"{self.name} cannot run it: {error}") from error
        except WorkerTimeoutError as error:
            raise DeviceTimeoutError(
                f"{self.name} cannot run it: {error}. If it is only slow, raise device.seconds."
            ) from error

    def close(self) -> None:
        """Release the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            release(worker)

    def __del__(self) -> None:
        # A candidate that was never closed may still be running.
        if self._worker is not None:
            self._worker.kill()


class Repairs(Protocol):
    """Restarts an RPC server that this process owns."""

    def restart(self) -> None:
        """Start the server again."""
        ...

    def mend(self, registered: bool) -> None:
        """Start the server again if the tracker no longer has it registered."""
        ...


@dataclass(frozen=True)
class Whereabouts:
    """Where a device is: its tracker's address, and its key there."""

    name: str
    host: str
    port: int
    key: str


def await_device(
    worker: Worker, place: Whereabouts, wait_seconds: float, seconds: float, repairs: Repairs | None
) -> None:
    """Wait until the tracker has the device free; have an own server that is gone restarted."""
    start, told = time.monotonic(), False
    while True:
        where = (place.host, place.port, place.key)
        sight = worker.call(tvm_tracker.look, *where, seconds=seconds)
        if repairs is not None:
            repairs.mend(sight.registered)
        if sight.state == tvm_tracker.FREE:
            return
        waited = time.monotonic() - start
        if waited > wait_seconds:
            raise DeviceUnreachableError(
                f"{place.name} cannot be reached for {wait_seconds:g} s: {sight.reason}"
            )
        if not told and repairs is None and waited > SILENT_SECONDS:
            told = True
            words = (place.name, sight.reason, wait_seconds)
            _log.warning("%s: %s Waiting for it, %g s at most.", *words)
        time.sleep(POLL_SECONDS)


@dataclass
class RemoteLink:
    """A candidate behind an RPC tracker."""

    name: str
    kind: str
    path: Path
    seconds: float
    host: str
    port: int
    key: str
    wait_seconds: float
    attempts: int
    pause: float
    repairs: Repairs | None = None
    session_seconds: float = SESSION_SECONDS

    def __post_init__(self) -> None:
        """Load the candidate, to notice at once if the device is not there."""
        self._worker: Worker | None = None
        self._closed = False
        self.call(_nothing)

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a session, and again in a new one if the session is lost."""
        if self._closed:
            raise DeviceRunError(f"{self.name} cannot run it: it was closed")
        losses: list[_Loss] = []
        while len(losses) < self.attempts:
            if losses:
                time.sleep(min(self.pause * 2 ** (len(losses) - 1), LONGEST_PAUSE))
            loss = _Loss()
            try:
                worker = self._connected(loss)
                loss.begin()
                return worker.call(function, *arguments, seconds=self.seconds)
            except DeviceUnreachableError as error:
                # The wait for it is already over.
                self._drop()
                raise _told(error, losses) from error
            except _LOST as error:
                losses.append(loss.end(error))
                self._drop(error)
        raise self._verdict(losses, arguments) from losses[-1].error

    def close(self) -> None:
        """End the session, and release the worker."""
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            release(worker)

    def __del__(self) -> None:
        self._drop()

    def _connected(self, loss: "_Loss") -> Worker:
        """Return a worker whose session has the candidate loaded; note how far it came."""
        if self._worker is None:
            worker = self._send()
            loss.begin()
            worker.call(tvm_run.load_library, self.name, self.path, seconds=self.session_seconds)
        return cast(Worker, self._worker)

    def _send(self) -> Worker:
        """Return a worker with a session to which the library was sent."""
        worker = self._worker = lease()
        place = Whereabouts(self.name, self.host, self.port, self.key)
        await_device(worker, place, self.wait_seconds, self.session_seconds, self.repairs)
        arguments = (self.name, self.kind, self.key, self.path)
        worker.call(tvm_run.send_library, *arguments, seconds=self.session_seconds)
        return worker

    def _drop(self, error: Exception | None = None) -> None:
        """End a session that is of no more use, and an own server that does not answer."""
        worker, self._worker = getattr(self, "_worker", None), None
        if worker is not None:
            worker.kill()
        if self.repairs is not None and isinstance(error, WorkerTimeoutError):
            self.repairs.restart()

    def _verdict(self, losses: "list[_Loss]", arguments: Sequence[Any]) -> DeviceError:
        """Return whether the connection or the candidate is to blame for these losses.

        The candidate is, if each loss came after its library was sent, and a session in which the
        same samples go to and fro, but nothing is loaded or run, is not lost.
        """
        last = losses[-1].error
        times = f"{self.name} was lost {len(losses)} times"
        if not all(loss.sent for loss in losses):
            return DeviceTransportError(f"{times}: {last}")
        if not self._is_sound(_samples_in(arguments), max(loss.seconds for loss in losses)):
            return DeviceTransportError(
                f"{times}, and also when nothing ran: the connection or the server is at fault, "
                f"not the candidate ({last})"
            )
        if all(isinstance(loss.error, WorkerTimeoutError) for loss in losses):
            return DeviceTimeoutError(
                f"{self.name} cannot run it: {last}, {len(losses)} times. If it is only slow, "
                "raise device.seconds or lower device.chunk_size."
            )
        return DeviceRunError(
            f"{self.name} cannot run it: the session was lost {len(losses)} times, each time when "
            f"it ran: {last}"
        )

    def _is_sound(self, samples: "Sequence[tvm_run.Rows]", seconds: float) -> bool:
        """Tell whether a session in which nothing runs lasts as long as those that were lost."""
        # Longer than a candidate may run is never needed.
        pause = min(seconds, self.seconds)
        try:
            limit = self.seconds + pause
            self._send().call(tvm_run.exercise, samples, pause, seconds=limit)
        except _LOST as error:
            _log.info("%s is lost when nothing runs, too: %s", self.name, error)
            return False
        finally:
            self._drop()
        return True


class _Loss:
    """A session that may get lost: when it did, and whether the library was sent before."""

    def __init__(self) -> None:
        self.sent, self.seconds = False, 0.0
        self.error: Exception = DeviceTransportError("")

    def begin(self) -> None:
        """Note that the library was sent, and what follows is the candidate's doing."""
        self.sent, self._start = True, time.monotonic()

    def end(self, error: Exception) -> "_Loss":
        """Note why and when the session was lost."""
        self.error = error
        self.seconds = time.monotonic() - self._start if self.sent else 0.0
        return self


def _told(error: DeviceError, losses: Sequence[_Loss]) -> DeviceError:
    """Return the error that a device is not there, with what was lost before, if anything."""
    if not losses:
        return error
    return type(error)(f"{error} Before, the session was lost: {losses[-1].error}")


def _samples_in(arguments: Sequence[Any]) -> "Sequence[tvm_run.Rows]":
    """Return the samples among the arguments of `run_samples` or `time_sample`."""
    first = arguments[0] if arguments else []
    if not isinstance(first, list) or not first:
        return []
    return first if isinstance(first[0], list) else [first]


def _nothing(state: dict[str, Any]) -> None:
    """Do nothing: only the connection is needed."""
