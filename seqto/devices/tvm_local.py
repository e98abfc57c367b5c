"""A private RPC tracker and server on loopback, which end with the process that started them.

A keeper process starts both, restarts the server when it ends or stalls, and ends both when its own
input closes: so they are gone however seqto ends.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from seqto.devices.helper_process import child_environment

HOST = "127.0.0.1"
WATCH_SECONDS = 0.2
"""How often the keeper checks the server."""

START_SECONDS = 60.0
"""How long a new server may take to register at the tracker."""

_KEEPER = [sys.executable, "-m", "seqto.devices.tvm_local"]


@dataclass
class LocalServers:
    """A tracker, and a server with this key that may use `threads` threads."""

    key: str
    threads: int
    port: int = field(init=False)

    def __post_init__(self) -> None:
        """Start the keeper; clients wait until tracker and server are up."""
        self.port = free_port()
        self._awaited()
        self._keeper = subprocess.Popen(
            [*_KEEPER, str(self.port), self.key],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment({"TVM_NUM_THREADS": str(self.threads)}),
            # A separate process group, which can be killed as a whole.
            start_new_session=True,
        )

    def restart(self) -> None:
        """Restart the server, whatever it is doing."""
        self._awaited()
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.write(b"restart\n")
            self._keeper.stdin.flush()

    def mend(self, registered: bool) -> None:
        """Restart the server if the tracker had it registered and no longer has.

        Its process may live on, but no longer listens. A new one has time to register.
        """
        if registered:
            self._registered = True
        elif self._registered or time.monotonic() - self._since > START_SECONDS:
            self.restart()

    def _awaited(self) -> None:
        self._registered, self._since = False, time.monotonic()

    def running(self) -> bool:
        """Tell whether the keeper runs."""
        return self._keeper.poll() is None

    def stop(self) -> None:
        """End both, and wait until they are gone."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        self._keeper.wait()


_running: dict[tuple[str, int], LocalServers] = {}


def local_servers(key: str, threads: int) -> LocalServers:
    """Return this process's own tracker and server with this key; start them if needed."""
    found = _running.get((key, threads))
    if found is None or not found.running():
        found = _running[key, threads] = LocalServers(key, threads)
    return found


@atexit.register
def stop_all() -> None:
    """End what this process started."""
    while _running:
        _running.popitem()[1].stop()


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


class _Keeper:
    """Runs in the keeper process, and keeps a tracker and a server alive."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._wanted = threading.Event()

    def keep(self) -> None:
        """Keep both alive until the input closes."""
        threading.Thread(target=self._listen, daemon=True).start()
        where = ["--host", HOST, "--port", str(self._port), "--port-end", str(self._port + 1)]
        tracker = _started("tvm.exec.rpc_tracker", where)
        server = self._server()
        while tracker.poll() is None:
            if self._wanted.is_set() or server.poll() is not None:
                self._wanted.clear()
                _end_with_children(server)
                server = self._server()
            time.sleep(WATCH_SECONDS)
        _end_group()

    def _server(self) -> subprocess.Popen[bytes]:
        own = free_port()
        where = ["--host", HOST, "--port", str(own), "--port-end", str(own + 1)]
        tracker = f"{HOST}:{self._port}"
        return _started("tvm.exec.rpc_server", [*where, "--tracker", tracker, "--key", self._key])

    def _listen(self) -> None:
        for _ in sys.stdin:
            self._wanted.set()
        _end_group()


def _started(module: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    # Not this process's input: a child that inherits it would keep it open.
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL)


def _end_with_children(server: subprocess.Popen[bytes]) -> None:
    """Kill a server and its child processes, which listen and serve."""
    for pid in _descendants(server.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.kill()
    server.wait()


def _descendants(pid: int) -> list[int]:
    """Return the ids of all direct and indirect child processes."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True)
    parents = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for _ in parents:
        added = [child for child, parent in parents if parent in found and child not in found]
        if not added:
            break
        found += added
    return found[1:]


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _Keeper(int(sys.argv[1]), sys.argv[2]).keep()
