"""Models from Hugging Face, or a mirror of it, kept in the user's cache folder."""

import functools
import hashlib
import logging
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import filelock
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ModelError
from seqto.graph.load import first_line, load_model
from seqto.logs import errors_only
from seqto.types import Model
from seqto.workspace import Workspace, written_whole

_log = logging.getLogger(__name__)

_NOT_FOUND = (
    "RepositoryNotFoundError",
    "RevisionNotFoundError",
    "RemoteEntryNotFoundError",
    # The name of the one above before version 1.
    "EntryNotFoundError",
)


@dataclass(config=ConfigDict(extra="forbid", arbitrary_types_allowed=True), kw_only=True)
class HubModel:
    """An ONNX file from a Hugging Face repository, named after the file unless `name` is given.

    A file with the given sha256 in the cache folder is used without any request, also if it was put
    there by hand. `needs` describes the data that the model is made for.
    """

    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    # Relative and without leading dots, because it becomes a path in the cache folder.
    file: Annotated[str, Field(pattern=r"^[^/.][^/]*(/[^/.][^/]*)*$")]
    sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None
    revision: Annotated[str, Field(pattern=r"^[\w-][\w./-]*$")] = "main"
    name: Annotated[str, BeforeValidator(lambda name: name or "")] = ""
    needs: str | None = field(default=None, compare=False)
    workspace: Workspace | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self.name = self.name or Path(self.file).stem

    def load(self) -> Model:
        """Return the model in memory; fetch it first if needed."""
        return load_model(self.fetch(), self.name)

    def fetch(self) -> Path:
        """Return the file's path in the cache folder; fetch it first if it is missing."""
        path = self.path
        if path.is_file() and self._is_as_fetched(path):
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # One process at a time: two would append to the same unfinished file.
            with filelock.FileLock(self._beside(".lock")):
                if not path.is_file():
                    self._download()
        except OSError as error:
            raise ModelError(
                f"{self._title} cannot be kept at {path} ({error.strerror or error}): set "
                "SEQTO_CACHE to a folder with space."
            ) from error
        return path

    @property
    def path(self) -> Path:
        """Where the file is kept, or must be put by hand."""
        workspace = self.workspace or Workspace.default()
        return workspace.models() / self.repo / self.revision / self.file

    @property
    def _title(self) -> str:
        return Path(self.file).name

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f".{self._title}{suffix}")

    def _download(self) -> None:
        """Fetch the file, continuing an earlier attempt; rename it only after its check."""
        client = self._client()
        url = client.hf_hub_url(self.repo, self.file, revision=self.revision)
        with errors_only("huggingface_hub"):
            try:
                metadata = client.get_hf_file_metadata(url)
                # Another content of the same revision gets another name.
                unfinished = self._beside(f".{self.sha256 or _safe(metadata.etag)}.part")
                _get(url, unfinished, metadata.size)
            except Exception as error:  # The client's errors have no common base.
                raise self._unreachable(error, client.constants.ENDPOINT) from error
        found = _sha256(unfinished)
        if self.sha256 not in (None, found):
            unfinished.unlink()
            raise ModelError(
                f"the {self._title} that came from {url} is not the one asked for and was "
                f"removed: its sha256 is {found}, not {self.sha256}. Try again, {self._by_hand()}."
            )
        if self.sha256 is None:
            _say_how_to_pin(self._title, found)
            with written_whole(self._beside(".sha256")) as note:
                note.write_text(found)
        unfinished.replace(self.path)

    def _client(self) -> Any:
        """Return huggingface_hub, which is needed only here."""
        try:
            import huggingface_hub
            import huggingface_hub.constants
        except ImportError as error:
            raise ModelError(
                f"{self._title} is fetched with huggingface_hub, which is not installed: "
                f"pip install 'seqto[hub]' (in a checkout '.[hub]'), {self._by_hand()}."
            ) from error
        return huggingface_hub

    def _is_as_fetched(self, path: Path) -> bool:
        """Tell whether the file is the one asked for, or at least the one that was fetched.

        No file is ever deleted here: somebody may have put it in place by hand.
        """
        found, note = _sha256(path), self._beside(".sha256")
        if self.sha256 not in (None, found):
            raise ModelError(
                f"{path} is another {self._title} than the one asked for: its sha256 is "
                f"{found}, not {self.sha256}. Take it as it is with model.sha256=null, or "
                "move it away and the right one is fetched."
            )
        if self.sha256 is None:
            _say_how_to_pin(self._title, found)
        if self.sha256 is not None or not note.is_file() or note.read_text() == found:
            return True
        aside = self._beside(".replaced")
        _log.warning("%s is not as it was fetched: it is now %s, and fetched again.", path, aside)
        path.replace(aside)
        return False

    def _unreachable(self, error: Exception, endpoint: str) -> ModelError:
        if type(error).__name__ in _NOT_FOUND:
            return ModelError(
                f"{endpoint} has no {self.file} in {self.repo} at revision {self.revision} (or "
                "hides it from you): check model.repo, model.file and model.revision."
            )
        if type(error).__name__ == "OfflineModeIsEnabled":
            reason = "offline mode is on, see HF_HUB_OFFLINE"
        else:
            reason = first_line(error).rstrip(".")
        return ModelError(
            f"{self._title} cannot be fetched from {self.repo} at {endpoint} ({reason}): check "
            f"the network or HF_ENDPOINT and try again, {self._by_hand()}."
        )

    def _by_hand(self) -> str:
        return (
            f"or put the file by hand at {self.path}, or take one that you have with "
            "model=local model.path=<file>"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def _say_how_to_pin(title: str, sha256: str) -> None:
    _log.warning(
        "Nobody says which %s it has to be. To get no other: model.sha256=%s", title, sha256
    )


def _get(url: str, path: Path, size: int | None) -> None:
    """Download the missing rest of the file at this address, with a progress bar."""
    # `hf_hub_download` itself starts over after an interruption.
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    path.touch()
    with path.open("r+b") as file:
        present = file.seek(0, 2)
        if size is not None and present > size:
            present = file.truncate(0)
            file.seek(0)
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        http_get(
            url,
            file,
            resume_size=present,
            headers=headers,
            expected_size=size,
            displayed_filename=Path(url).name,
        )


def _safe(etag: str | None) -> str:
    return hashlib.sha256((etag or "").encode()).hexdigest()[:16]
