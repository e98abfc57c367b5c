"""Links to a compiled candidate: in a worker on this machine, or behind an RPC tracker.

A link calls functions of `tvm_run` where the candidate is. A remote link opens a new session when
the old one is lost, stalls or crashes, and repeats the call; earlier results are kept.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from seqto.devices import tvm_run
from seqto.devices.helper_process import (
    Worker,
    WorkerCrashError,
    WorkerTimeoutError,
    lease,
    release,
)
from seqto.devices.loading import is_watched, note
from seqto.errors import DeviceError, DeviceRunError, DeviceTimeoutError, DeviceTransportError

Result = TypeVar("Result")

SESSION_SECONDS = 30.0
"""How long opening a session, and sending a library, may take."""

LONGEST_PAUSE = 30.0
"""Pauses between two attempts grow up to this many seconds."""


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
            connected = False
            try:
                worker = self._connected()
                connected = True
                return worker.call(function, *arguments, seconds=self.seconds)
            except tvm_run.UnreachableError:
                # The wait for it is already over.
                self._drop()
                raise
            except (WorkerCrashError, WorkerTimeoutError, DeviceTransportError) as error:
                losses.append(_Loss(connected, error))
                self._drop()
                if self.repairs is not None and isinstance(error, WorkerTimeoutError):
                    self.repairs.restart()
        raise self._verdict(losses) from losses[-1].error

    def close(self) -> None:
        """End the session, and release the worker."""
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            release(worker)

    def __del__(self) -> None:
        self._drop()

    def _connected(self) -> Worker:
        """Return a worker whose session has the candidate loaded."""
        if self._worker is None:
            self._worker = lease()
            where = (self.host, self.port, self.key, self.wait_seconds)
            limit = self.wait_seconds + self.session_seconds
            self._worker.call(tvm_run.find_device, self.name, *where, seconds=limit)
            arguments = (self.name, self.kind, self.key, self.path)
            self._worker.call(tvm_run.open_session, *arguments, seconds=self.session_seconds)
        return self._worker

    def _drop(self) -> None:
        worker, self._worker = getattr(self, "_worker", None), None
        if worker is not None:
            worker.kill()

    def _verdict(self, losses: "list[_Loss]") -> DeviceError:
        """Return whether the connection or the candidate is to blame for these losses.

        An attempt that was connected has sent and loaded the library, so the connection worked. If
        every loss came while the candidate ran, the candidate is to blame.
        """
        last = losses[-1].error
        if not all(loss.connected for loss in losses):
            return DeviceTransportError(f"{self.name} was lost {len(losses)} times: {last}")
        if all(isinstance(loss.error, WorkerTimeoutError) for loss in losses):
            return DeviceTimeoutError(
                f"{self.name} cannot run it: {last}, {len(losses)} times. If it is only slow, "
                "raise device.seconds or lower device.chunk_size."
            )
        return DeviceRunError(
            f"{self.name} cannot run it: the session was lost {len(losses)} times, each time when "
            f"it ran: {last}"
        )


@dataclass(frozen=True)
class _Loss:
    """A lost session; `connected` if the candidate was already loaded."""

    connected: bool
    error: Exception


def _nothing(state: dict[str, Any]) -> None:
    """Do nothing: only the connection is needed."""
