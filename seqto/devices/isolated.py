"""Programs of any device in separate processes: a native crash ends only the candidate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from seqto.devices.helper_process import (
    START_SECONDS,
    State,
    Worker,
    WorkerCrashError,
    WorkerTimeoutError,
    lease,
    release,
)
from seqto.devices.loading import is_watched, note, watched
from seqto.errors import DeviceCompileError, DeviceError, DeviceRunError, DeviceTimeoutError
from seqto.types import Arrays, Latency, Loading, Model, Profile

Result = TypeVar("Result")


class InProcess(Protocol):
    """A device that runs candidates in the process that calls it."""

    name: str
    repeats: int

    def load(self, model: Model) -> Any:
        """Return the model ready to run."""
        ...


@dataclass
class IsolatedProgram:
    """A device's program in a separate process."""

    device: InProcess
    worker: Worker | None
    seconds: float

    @classmethod
    def load(cls, device: InProcess, model: Model, seconds: float) -> "IsolatedProgram":
        """Load the model with this device in a worker, which notes what that took."""
        program = cls(device, lease(), seconds)
        what = f"load {model.name!r}"
        # The device's libraries are imported first, which takes long on a busy machine.
        program._call(DeviceCompileError, what, _begin, device, seconds=START_SECONDS)
        note(program._call(DeviceCompileError, what, _load, model, is_watched()))
        return program

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs for these samples, in the order of the graph."""
        return self._call(DeviceRunError, "run it", _run, dict(inputs))

    def time(self, inputs: Arrays) -> Latency:
        """Return the median and spread of one call's time."""
        return self._call(DeviceRunError, "run it", _time, dict(inputs))

    @property
    def turns(self) -> int:
        """How many turns tell how long a model takes."""
        return self.device.repeats

    def times(self, inputs: Arrays, calls: int) -> list[float]:
        """Return the milliseconds of each of so many calls, not warmed up."""
        return self._call(DeviceRunError, "run it", _times, dict(inputs), calls)

    def close(self) -> None:
        """Release the worker."""
        worker, self.worker = self.worker, None
        if worker is not None:
            release(worker)

    def __del__(self) -> None:
        # A program that was never closed may still be running.
        if self.worker is not None:
            self.worker.kill()

    def _call(
        self,
        kind: type[DeviceError],
        what: str,
        function: Callable[..., Result],
        *arguments: Any,
        seconds: float | None = None,
    ) -> Result:
        if self.worker is None:
            raise DeviceRunError(f"{self.device.name} cannot {what}: it was closed")
        try:
            return self.worker.call(function, *arguments, seconds=seconds or self.seconds)
        except WorkerCrashError as error:
            raise kind(f"{self.device.name} cannot {what}: {error}") from error
        except WorkerTimeoutError as error:
            raise DeviceTimeoutError(
                f"{self.device.name} cannot {what}: {error}. If it is only slow, raise "
                "device.seconds."
            ) from error


def isolated_profile(
    device: InProcess, model: Model, inputs: Arrays, seconds: float
) -> Profile | None:
    """Return what a device that `Profiles` tells of this model, asked in a separate process."""
    program = IsolatedProgram(device, lease(), seconds)
    try:
        what = f"load {model.name!r}"
        program._call(DeviceCompileError, what, _begin, device, seconds=START_SECONDS)
        return program._call(DeviceRunError, what, _profile, model, dict(inputs))
    finally:
        program.close()


def _begin(state: State, device: InProcess) -> None:
    state["device"] = device


def _load(state: State, model: Model, is_watched: bool) -> Loading | None:
    state["program"], loading = watched(lambda: state["device"].load(model), is_watched)
    return loading


def _run(state: State, inputs: Arrays) -> list[np.ndarray]:
    return list(state["program"].run(inputs))


def _time(state: State, inputs: Arrays) -> Latency:
    return state["program"].time(inputs)  # type: ignore[no-any-return]


def _times(state: State, inputs: Arrays, calls: int) -> list[float]:
    return list(state["program"].times(inputs, calls))


def _profile(state: State, model: Model, inputs: Arrays) -> Profile | None:
    return state["device"].profile(model, inputs)  # type: ignore[no-any-return]
