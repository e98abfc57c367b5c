"""The cache folder for what is computed once and used again; one object owns all its paths.

Every file ends with a seal: a checksum of its content and of what made it, which its name tells. So
a file that was damaged, edited or put in the place of another one is noticed and made again. The
formats in use (npy, npz, shared libraries) ignore what comes after their content; in JSON it is a
line of its own.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from seqto.errors import CacheError

_log = logging.getLogger(__name__)

_SEAL = '\n"seqto:{digest}"\n'
_SEAL_BYTES = len(_SEAL.format(digest=64 * "0"))
_NO_PLACE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EEXIST),
}
"""What the system says where a file cannot be written."""


@dataclass(frozen=True)
class Workspace:
    """Paths by content key: every file is complete, and processes may share it."""

    root: Path

    @classmethod
    def default(cls) -> "Workspace":
        """Return the user's cache folder, or the one that SEQTO_CACHE names."""
        return cls(Path(os.environ.get("SEQTO_CACHE") or platformdirs.user_cache_dir("seqto")))

    def models(self) -> Path:
        """Return where fetched models are, by repository, revision and file."""
        return self.root / "models"

    def samples(self, key: str) -> Path:
        """Return where preprocessed inputs are."""
        return self.root / "samples" / key

    def ranges(self, key: str) -> Path:
        """Return where the activation ranges of a calibrated model are."""
        return self.root / "ranges" / f"{key}.json"

    def learned(self, key: str) -> Path:
        """Return where what a quantizer learned from samples is."""
        return self.root / "learned" / f"{key}.npz"

    def scores(self, key: str) -> Path:
        """Return where the layer scores of an analysed model are."""
        return self.root / "scores" / f"{key}.json"

    def screens(self, key: str) -> Path:
        """Return where the screened candidates of the study with this key are."""
        return self.root / "screens" / key

    def reference(self, key: str) -> Path:
        """Return where the float model's outputs on the evaluation split are."""
        return self.root / "reference" / f"{key}.npz"

    def library(self, key: str) -> Path:
        """Return where a candidate's compiled library is."""
        return self.root / "libraries" / f"{key}.so"


def kept(path: Path, make: Callable[[Path], None]) -> Path:
    """Return the path of a cached file after it was checked, or made if it is missing or damaged.

    `make` writes the file to the path that it is given. A path's last two parts tell what made it.
    """
    if not _is_sound(path):
        try:
            with written_whole(path) as temporary:
                make(temporary)
                with temporary.open("r+b") as file:
                    seal = _seal_of(path, file, temporary.stat().st_size)
                    file.seek(0, os.SEEK_END)
                    file.write(seal)
        except OSError as error:
            if error.errno not in _NO_PLACE:
                raise
            raise CacheError(
                f"{path.name} cannot be kept in {path.parent} ({error.strerror}): set SEQTO_CACHE "
                "to a folder with space."
            ) from error
    return path


def kept_json(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the content of a cached JSON file; compute it if it is missing or damaged."""
    kept(path, lambda temporary: _write_json(temporary, compute()))
    return json.loads(path.read_bytes()[:-_SEAL_BYTES])


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _is_sound(path: Path) -> bool:
    """Tell whether a file is there as it was made; tell the log if it is there and is not."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - _SEAL_BYTES
            sound = size >= 0 and _seal_of(path, file, size) == file.read(_SEAL_BYTES)
    except OSError:
        return False
    if not sound:
        _log.warning(
            "%s is not as seqto wrote it (damaged, changed, or by an earlier version): it is made "
            "again.",
            path,
        )
    return sound


def _seal_of(path: Path, file: Any, size: int) -> bytes:
    """Return the seal for this much content of a file that is kept at the path."""
    digest = hashlib.sha256("/".join(path.parts[-2:]).encode() + b"\0")
    file.seek(0)
    left = size
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return _SEAL.format(digest=digest.hexdigest()).encode()


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` if the block succeeds, and is removed if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{path.suffix}")
    try:
        # Not with tempfile: its files are private, but a cache or a report may be shared.
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
