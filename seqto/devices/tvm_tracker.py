"""What a TVM RPC tracker says of a device.

A server is judged by the tracker, not by its process: when a session's process crashes or its
connection is reset, TVM's server no longer listens, but its process lives on.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqto.devices.helper_process import State
from seqto.devices.tvm_compile import last_line

FREE, BUSY, GONE, UNKNOWN = "free", "busy", "gone", "unknown"
"""The states of a device: `gone` if its server was registered once, `unknown` if it never was, or
if no tracker answers."""


@dataclass(frozen=True)
class Sight:
    """What the tracker says of a device; unless it is free, why not and what to do."""

    state: str
    reason: str = ""

    @property
    def registered(self) -> bool:
        """Whether the device's server is registered at the tracker."""
        return self.state in (FREE, BUSY)


def look(state: State, host: str, port: int, key: str) -> Sight:
    """Ask the tracker whether a device with this key is free; called in a worker."""
    from tvm import rpc

    try:
        # TVM itself would retry for a minute.
        socket.create_connection((host, port), timeout=5).close()
        tracker = state["tracker"] = rpc.connect_tracker(host, port)
        summary = tracker.summary()
    except Exception as error:  # Socket errors, and TVM's own if the answer is cut short.
        return Sight(
            UNKNOWN,
            f"no tracker answers at {host}:{port} ({last_line(error)}). Start one with "
            f"python -m tvm.exec.rpc_tracker --host {host} --port {port}, or set device.tracker.",
        )
    return _sight(summary, f"{host}:{port}", key)


def _sight(summary: Mapping[str, Any], address: str, key: str) -> Sight:
    """Read the tracker's summary, in which free devices have a queue and servers a row."""
    devices = summary["queue_info"]
    if devices.get(key, {}).get("free"):
        return Sight(FREE)
    # The queue stays when its server is gone, the row does not.
    if any(row.get("key") == f"server:{key}" for row in summary["server_info"]):
        return Sight(
            BUSY,
            f"the tracker at {address} has no free device with the key {key!r}: it is in use, "
            "or stuck in a session that broke off. Wait for it, start its server again, or raise "
            "device.wait_seconds.",
        )
    start = (
        f"python -m tvm.exec.rpc_server --tracker {address} --key {key} over there, or TVM's RPC "
        "app on a phone"
    )
    if key in devices:
        return Sight(
            GONE,
            f"the server of the device with the key {key!r} is no longer registered at the tracker "
            f"at {address}: TVM's server stops listening when a session crashes, even if its "
            f"process lives on. Start it again: {start}.",
        )
    known = ", ".join(sorted(devices)) or "none"
    return Sight(
        UNKNOWN,
        f"the tracker at {address} has no device with the key {key!r} (it has {known}). Start "
        f"{start}, or set device.key.",
    )
