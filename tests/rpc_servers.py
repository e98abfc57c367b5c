"""RPC trackers and servers of TVM, as a user starts them, and ways to disturb them."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from seqto.devices import tvm_run
from seqto.devices.tvm_local import free_port

KEY = "board"


def _started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ended(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def tracker() -> Iterator[int]:
    """Run a tracker on loopback, and yield its port."""
    port = free_port()
    process = _started(
        *("tvm.exec.rpc_tracker", "--host", "127.0.0.1"),
        *("--port", str(port), "--port-end", str(port + 1)),
    )
    try:
        _wait_for(port)
        yield port
    finally:
        _ended(process)


class Server:
    """An RPC server with the key `board` that can be killed, stopped and started again."""

    def __init__(self, tracker: int, address: str | None = None) -> None:
        self._tracker, self._address = tracker, address
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server; who wants it waits for it at the tracker."""
        # Whoever stands in front of it knows its port.
        port = free_port() if self._process and not self._address else self.port
        address = ["--custom-addr", self._address] if self._address else []
        self._process = _started(
            *("tvm.exec.rpc_server", "--host", "127.0.0.1", "--key", KEY, *address),
            *("--port", str(port), "--port-end", str(port + 1)),
            *("--tracker", f"127.0.0.1:{self._tracker}"),
        )

    def kill(self) -> None:
        """End the server and its sessions."""
        assert self._process is not None
        _ended(self._process)

    def stop(self) -> None:
        """Have the server and its sessions stand still."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Have them go on."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)


@contextlib.contextmanager
def server(tracker: int, address: str | None = None) -> Iterator[Server]:
    """Run a server that is registered at this tracker."""
    found = Server(tracker, address)
    try:
        yield found
    finally:
        found.kill()


class Proxy:
    """A link to a server that breaks off in some sessions, once so many bytes went by.

    `breaks` tells by a session's number, from 1, whether it does; `reset` whether abruptly.
    """

    def __init__(
        self, host: str, port: int, limit: int, breaks: Callable[[int], bool], reset: bool = False
    ) -> None:
        self.sessions = self.broken = 0
        self._port, self._limit, self._breaks, self._reset = port, limit, breaks, reset
        self._listener = socket.create_server((host, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more sessions."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._port))
            self.sessions += 1
            limit = self._limit if self._breaks(self.sessions) else None
            threading.Thread(target=self._relay, args=(client, there, limit), daemon=True).start()

    def _relay(self, client: socket.socket, there: socket.socket, limit: int | None) -> None:
        other, copied = {client: there, there: client}, {client: 0, there: 0}
        with contextlib.suppress(OSError):
            while True:
                # In one thread: a socket that another one reads from cannot be reset.
                for source in select.select([client, there], [], [])[0]:
                    data = source.recv(65536)
                    copied[source] += len(data)
                    if limit is not None and copied[source] > limit:
                        self.broken += 1
                        self._end(client, there, self._reset)
                        return
                    if not data:
                        self._end(client, there)
                        return
                    other[source].sendall(data)
        self._end(client, there)

    def _end(self, client: socket.socket, there: socket.socket, reset: bool = False) -> None:
        for each in (client, there):
            if reset:
                # Closed with nothing to linger for, a connection is reset.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()


def _wait_for(port: int) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {port}")


def processes_with(text: str) -> list[int]:
    """Return the processes whose command line has this text."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if text in line]


def end_session(text: str) -> None:
    """Kill the process that serves a session, of the server whose command line has this text."""
    (first, *_) = processes_with(text)
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout
    children = {int(parent): int(pid) for pid, parent in map(str.split, listed.splitlines())}
    # The server has a child that listens, and that one a child for each session.
    os.kill(children[children[first]], signal.SIGKILL)


def crash_over_there(state: dict[str, Any], text: str) -> None:
    """Do what a wrong kernel does to a session: its process over there dies; a worker's call."""
    end_session(text)
    tvm_run.exercise(state, [], 0)
    raise AssertionError("the session lives")


def hang(state: dict[str, Any]) -> None:
    """Do what a kernel that never ends does; a worker's call."""
    time.sleep(60)
