"""Claims on a study: who wants it or holds it, and whether they are still alive."""

import contextlib
import datetime
import functools
import getpass
import json
import os
import platform
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


def _who() -> str:
    user = "somebody"
    # A container may have no name for its user.
    with contextlib.suppress(Exception):
        user = getpass.getuser()
    return f"{user}@{platform.node()}, process {os.getpid()}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@functools.cache
def _machine() -> str:
    """Return what processes that see each other have in common: a boot, and a space of numbers."""
    return "/".join([platform.node(), *_kernel_facts()])


def _kernel_facts() -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError):
        yield os.readlink("/proc/self/ns/pid")


def _started(number: int) -> str:
    """Return when a process started, in the system's own words; "" if it does not run."""
    stat = Path(f"/proc/{number}/stat")
    if not stat.parent.parent.joinpath("self").exists():
        return _answers(number)
    try:
        # Its name, in brackets, may have spaces.
        state, *rest = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # What was killed stays as a zombie until its parent notices.
    return "" if state in "ZX" else rest[18]


def _answers(number: int) -> str:
    """Return "yes" for a process that exists, where there is no /proc."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "yes"
    return "yes"


@dataclass(frozen=True)
class Claim:
    """One process's claim on a study; `turn` counts the holders, `beat` rises while it lives."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    who: str = field(default_factory=_who)
    since: str = field(default_factory=_now)
    machine: str = field(default_factory=_machine)
    process: str = field(default_factory=lambda: f"{os.getpid()}:{_started(os.getpid())}")
    turn: int = 0
    holds: bool = False
    beat: int = 0

    @classmethod
    def of(cls, text: str) -> "Claim | None":
        """Return the claim that was written as this text; None if it is none."""
        with contextlib.suppress(ValueError, TypeError):
            return cls(**json.loads(text))
        return None

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def later(self, **changes: object) -> "Claim":
        """Return the claim with a new beat, and these changes."""
        return replace(self, beat=self.beat + 1, **changes)  # type: ignore[arg-type]

    @property
    def is_alive(self) -> bool | None:
        """Whether its process runs; None if it is on another machine, where nobody can look."""
        if self.machine != _machine():
            return None
        number, _, started = self.process.partition(":")
        return _started(int(number)) == started
