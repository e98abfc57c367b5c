"""The cache folder for what is computed once and used again; one object owns all its paths."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs


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

    def lock(self, key: str) -> Path:
        """Return the file that is locked while a process runs the study with this key."""
        return self.root / "locks" / f"{key}.lock"


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
