"""A small Hugging Face on loopback: one file, that may be wrong, missing or cut off."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

REPO, FILE = "owner/zoo", "vision/small.onnx"


@dataclass
class Hub:
    """What the server has, what it was asked for, and where it breaks off."""

    content: bytes
    endpoint: str = ""
    cuts: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    heads: int = 0
    elsewhere: bool = False
    """Whether the content lies on another server, as that of large files does."""

    @property
    def sha256(self) -> str:
        """The hash of the content."""
        return hashlib.sha256(self.content).hexdigest()


@contextmanager
def served(content: bytes) -> Iterator[Hub]:
    """Serve this content under REPO and FILE, on a free port."""
    hub = Hub(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def look_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what HF_ENDPOINT does, which the client reads only when it is imported."""
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.heads += 1
            if hub.elsewhere:
                self._redirect()
            elif self._is_there():
                self._begin(200, len(hub.content))

        def do_GET(self) -> None:
            if hub.elsewhere and self.path != "/storage":
                return self._redirect()
            if not self._is_there():
                return
            wanted = self.headers.get("Range")
            hub.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            rest = hub.content[start:]
            self._begin(206 if wanted else 200, len(rest), start if wanted else None)
            end = hub.cuts.pop(0) if hub.cuts else len(rest)
            self.wfile.write(rest[:end])
            self.close_connection = True

        def _is_there(self) -> bool:
            found = self.path in (f"/{REPO}/resolve/main/{FILE}", "/storage")
            if not found:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
            return found

        def _redirect(self) -> None:
            self.send_response(302)
            # Another name of the same machine is another server to the client.
            self.send_header(
                "Location", f"{hub.endpoint.replace('127.0.0.1', 'localhost')}/storage"
            )
            self.send_header("X-Linked-Size", str(len(hub.content)))
            self.send_header("X-Linked-ETag", f'"{hub.sha256}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _begin(self, status: int, length: int, start: int | None = None) -> None:
            self.send_response(status)
            self.send_header("ETag", f'"{hub.sha256}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(length))
            if start is not None:
                total = len(hub.content)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    return Handler
