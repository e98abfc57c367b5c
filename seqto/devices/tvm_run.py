"""Libraries compiled by TVM, run in a worker: on this machine, or in an RPC session."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqto.devices.helper_process import State
from seqto.devices.loading import measured, watched
from seqto.devices.tvm_compile import last_line
from seqto.errors import DeviceRunError, DeviceTransportError, DeviceUnreachableError
from seqto.types import Latency, Loading

Rows = Sequence[np.ndarray]
"""The inputs of one sample, in the order of the graph."""


def open_library(
    state: State, name: str, kind: str, path: Path, is_watched: bool
) -> Loading | None:
    """Load a library for a device of this kind on this machine; called in a worker.

    If somebody watches, return what that took.
    """
    import tvm

    with _explained(name, "load its library", remote=False):
        device = _device(tvm, kind, name)

        def load() -> None:
            _start(state, name, tvm.runtime.load_module(str(path)), device, remote=False)

        return watched(lambda: measured(load, time.perf_counter), is_watched)[1]


def send_library(state: State, name: str, kind: str, key: str, path: Path) -> None:
    """Open a session on the found device, and send a library there; called in a worker."""
    with _explained(name, "load its library", remote=True):
        # Its own timeout would not end a call that hangs; the worker is killed instead.
        session = state["tracker"].request(key, session_timeout=0, max_retry=1)
        state.update(session=session, device=_device(session, kind, name), name=name)
        session.upload(str(path))


def load_library(state: State, name: str, path: Path) -> None:
    """Load the library that was sent; called in a worker."""
    with _explained(name, "load its library", remote=True):
        _start(state, name, state["session"].load_module(path.name), state["device"], remote=True)


def exercise(state: State, samples: Sequence[Rows], pause: float) -> None:
    """Send samples to the device and back before and after a pause, without running anything.

    A connection that breaks off here breaks off whatever the candidate does. Called in a worker.
    """
    with _explained(state["name"], "hold samples", remote=True):
        for wait in (pause, 0.0):
            # More than loading and starting a candidate sends.
            for rows in ([np.zeros(16_384, np.float32)], *samples):
                for placed in _placed(state, rows):
                    placed.numpy()
            time.sleep(wait)


def run_samples(state: State, samples: Sequence[Rows]) -> list[list[np.ndarray]]:
    """Return the outputs of each sample; called in a worker."""
    with _explained(state["name"], "run it", state["remote"]):
        return [_ran(state, rows) for rows in samples]


def time_sample(state: State, rows: Rows, warmup: int, repeats: int) -> Latency:
    """Return how long a sample takes by the device's clock; called in a worker."""
    with _explained(state["name"], "run it", state["remote"]):
        for _ in range(warmup):
            _ran(state, rows)
        timer = state["machine"].time_evaluator("main", state["device"], number=1, repeat=repeats)
        taken = timer(*_placed(state, rows)).results
    low, median, high = np.percentile(taken, [10, 50, 90]) * 1000
    return Latency(median_ms=float(median), p10_ms=float(low), p90_ms=float(high))


def _start(state: State, name: str, library: Any, device: Any, remote: bool) -> None:
    from tvm import relax

    machine = relax.VirtualMachine(library, device)
    state.update(machine=machine, device=device, name=name, remote=remote)


def _device(place: Any, kind: str, name: str) -> Any:
    """Return the device of this kind, here or in a session; raise if it has no driver."""
    lack = driver_lacks(place, kind)
    if lack:
        raise DeviceUnreachableError(f"{name} cannot be used, it needs {lack}.")
    return _of_kind(place, kind)


def _of_kind(place: Any, kind: str) -> Any:
    return place.device("cpu" if kind == "llvm" else kind, 0)


def driver_lacks(place: Any, kind: str) -> str:
    """Return which runtime or driver is missing here or in a session; "" if there is a device."""
    device = _of_kind(place, kind)
    try:
        if device.exist:
            return ""
        device.sync()
        reason = f"there is no {kind} device"
    except Exception as error:  # Says whether the runtime, the driver or the hardware is missing.
        if kind not in str(error).lower():
            # A broken session says nothing of it.
            raise
        reason = last_line(error).rstrip(".")
    return f"TVM's runtime and a driver for {kind} where it runs ({reason}): {_remedy(kind)}"


def _remedy(kind: str) -> str:
    if kind == "opencl":
        return (
            "scripts/opencl_runtime builds TVM's OpenCL runtime, which the TVM from PyPI lacks; "
            "the driver is that of the GPU"
        )
    return f"build TVM with USE_{kind.upper()}=ON"


def _placed(state: State, rows: Rows) -> list[Any]:
    import tvm

    return [tvm.runtime.tensor(np.ascontiguousarray(row), state["device"]) for row in rows]


def _ran(state: State, rows: Rows) -> list[np.ndarray]:
    """Return the outputs of one sample."""
    machine = state["machine"]
    # In these steps, because a remote call cannot return a tuple of outputs.
    machine.set_input("main", *_placed(state, rows))
    machine.invoke_stateful("main")
    outputs = machine.get_outputs("main")
    return [each.numpy() for each in (outputs if isinstance(outputs, tuple | list) else [outputs])]


@contextlib.contextmanager
def _explained(name: str, what: str, remote: bool) -> Iterator[None]:
    """Turn TVM's errors into errors of the candidate or of the connection."""
    try:
        yield
    except DeviceUnreachableError:
        raise
    except Exception as error:  # TVM's errors have no common base.
        if remote and _of_the_link(error):
            raise DeviceTransportError(
                f"{name} was lost: the session broke off ({last_line(error)})"
            ) from error
        raise DeviceRunError(f"{name} cannot {what}: {last_line(error)}") from error


def _of_the_link(error: Exception) -> bool:
    """Tell whether an RPC call failed in the connection, not on the device."""
    # Errors on the device come back with these words, and errors raised here have these types.
    here = isinstance(error, TypeError | ValueError | LookupError | AttributeError)
    return not here and "Error caught from RPC call" not in str(error)
