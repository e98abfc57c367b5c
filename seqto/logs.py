"""The logs of other libraries."""

import contextlib
import logging
from collections.abc import Iterator


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
