"""What other libraries log."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def errors_only(name: str) -> Iterator[None]:
    """Keep a library's warnings off the terminal: each is followed by a retry or an error."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
