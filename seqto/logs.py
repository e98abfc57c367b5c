"""Logs: of other libraries, and without secrets."""

import contextlib
import logging
import math
import time
from collections.abc import Iterator

from seqto.secrets import masked


class MaskedFormatter(logging.Formatter):
    """Formats records, tracebacks included, without the secrets in them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return masked(super().format(record))


class CalmFilter(logging.Filter):
    """Lets through one line an outage of a server, where a library logs each of its attempts."""

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be seen; instead of the first attempt plain words are."""
        if record.name != "urllib3.connectionpool" or record.levelno >= logging.ERROR:
            return True
        told, self._last = time.monotonic() - self._last < self._seconds, time.monotonic()
        # In place, for other handlers as well: a line of its own would come once from each filter.
        record.msg, record.args = "A server does not answer: waiting for it to come back.", None
        return not told


@contextlib.contextmanager
def at_level(level: int, *names: str) -> Iterator[None]:
    """Hide what libraries log below this level within the block."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, held in zip(loggers, before, strict=True):
            logger.setLevel(held)


def errors_only(name: str) -> contextlib.AbstractContextManager[None]:
    """Hide a library's warnings within the block: a retry or an error follows each of them."""
    return at_level(logging.ERROR, name)
