"""What a command line leaves, and how tests run one."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """What a command left."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]
