"""Libraries compiled by TVM, run in a worker: on this machine, or in an RPC session."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqto.devices.helper_process import State
from seqto.devices.loading import measured, watched
from seqto.devices.tvm_compile import last_line
from seqto.errors import DeviceRunError, DeviceTransportError
from seqto.types import Latency, Loading

Rows = Sequence[np.ndarray]
"""The inputs of one sample, in the order of the graph."""

POLL_SECONDS = 0.2
"""How often the tracker is asked for a free device."""


class UnreachableError(DeviceTransportError):
    """The device is not there, and retrying does not help."""


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


def find_device(state: State, name: str, host: str, port: int, key: str, seconds: float) -> None:
    """Wait until the tracker has a free device with this key; called in a worker."""
    end = time.monotonic() + seconds
    while True:
        reason = _why_not(state, host, port, key)
        if not reason:
            return
        if time.monotonic() > end:
            raise UnreachableError(f"{name} cannot be reached for {seconds:g} s: {reason}")
        time.sleep(POLL_SECONDS)


def _why_not(state: State, host: str, port: int, key: str) -> str:
    """Return why there is no free device with this key, or "" if there is one."""
    from tvm import rpc

    try:
        # TVM itself would retry for a minute.
        socket.create_connection((host, port), timeout=5).close()
        tracker = state["tracker"] = rpc.connect_tracker(host, port)
        devices = tracker.summary()["queue_info"]
    except Exception as error:  # Socket errors, and TVM's own if the answer is cut short.
        return (
            f"no tracker answers at {host}:{port} ({last_line(error)}). Start one with "
            f"python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {port}, or set device.tracker."
        )
    if key not in devices:
        known = ", ".join(sorted(devices)) or "none"
        return (
            f"the tracker at {host}:{port} has no device with the key {key!r} (it has {known}). "
            "Start an RPC server with it, or set device.key."
        )
    if not devices[key]["free"]:
        return (
            f"the tracker at {host}:{port} has no free device with the key {key!r}: it is in use, "
            "or its server is gone. Wait for it, start it again, or raise device.wait_seconds."
        )
    return ""


def open_session(state: State, name: str, kind: str, key: str, path: Path) -> None:
    """Open a session on the found device, and load a library there; called in a worker."""
    with _explained(name, "load its library", remote=True):
        # Its own timeout would not end a call that hangs; the worker is killed instead.
        session = state["tracker"].request(key, session_timeout=0, max_retry=1)
        device = _device(session, kind, name)
        session.upload(str(path))
        _start(state, name, session.load_module(path.name), device, remote=True)


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
    device = place.device("cpu" if kind == "llvm" else kind, 0)
    if not device.exist:
        reason = f"it has no {kind} device"
        try:
            device.sync()
        except Exception as error:  # Says whether the driver is missing, or the hardware.
            reason = last_line(error).rstrip(".")
        raise UnreachableError(
            f"{name} cannot be used: {reason}. The TVM runtime that runs candidates needs a driver "
            f"for {kind}, which the one from PyPI may lack: build TVM with "
            f"USE_{kind.upper()}=ON, or use its RPC app on Android."
        )
    return device


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
    except UnreachableError:
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
