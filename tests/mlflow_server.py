"""A real MLflow server on this machine, for what only a browser or a client can see."""

import base64
import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def served(store: str, folder: Path) -> Iterator[str]:
    """Yield the address of a server of this store, which runs in this folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            # It has children; asked politely, they take ten seconds to end.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert process.poll() is None, "the server ended: see server.log"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.25)
    raise TimeoutError(f"{url} does not answer")


@contextlib.contextmanager
def guarded(server: str, *passwords: str) -> Iterator[list[str]]:
    """Yield the server's addresses behind a proxy, one for each password that it accepts."""

    class Guard(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") not in accepted:
                self._answer(401, b"You are not authenticated.", {})
                return
            request = urllib.request.Request(server + self.path, body or None, method=self.command)
            for name in ("Content-Type", "Accept"):
                if name in self.headers:
                    request.add_header(name, self.headers[name])
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self._answer(answer.status, answer.read(), answer.headers)
            except urllib.error.HTTPError as refused:
                self._answer(refused.code, refused.read(), refused.headers)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", headers.get("Content-Type") or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    accepted = {f"Basic {base64.b64encode(f'ann:{each}'.encode()).decode()}" for each in passwords}
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield [f"http://ann:{each}@127.0.0.1:{proxy.server_port}" for each in passwords]
    finally:
        proxy.shutdown()
        proxy.server_close()
