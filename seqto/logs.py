"""The logs of other libraries."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def errors_only(name: str) -> Iterator[None]:
    """Hide a library's warnings within the block: a retry or an error follows each of them."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
