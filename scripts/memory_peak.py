"""The peak memory of all processes of a session, for the benchmarks (Linux only)."""

import contextlib
import os
import threading
from pathlib import Path

_SECONDS = 0.25


class Peak:
    """Watches the memory of all processes of a session, with shared memory counted once."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._largest = self._all = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int, int]:
        """Return the peak of the largest process, and that of all together, in kilobytes."""
        self._ended.set()
        self._thread.join()
        return self._largest, self._all

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS):
            parts = [self._part(int(each.name)) for each in Path("/proc").glob("[0-9]*")]
            self._largest = max(self._largest, *(resident for resident, _ in parts))
            self._all = max(self._all, sum(share for _, share in parts))

    def _part(self, process: int) -> tuple[int, int]:
        """Return a process's resident and proportional memory."""
        with contextlib.suppress(OSError):
            if os.getsid(process) == self._session:
                lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
                fields = {line.split(":")[0]: int(line.split()[1]) for line in lines}
                return fields["Rss"], fields["Pss"]
        return 0, 0
