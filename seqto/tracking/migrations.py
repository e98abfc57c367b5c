"""The steps in which MLflow makes the tables of a new store, counted."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from pathlib import Path

import mlflow.store.db_migrations

from seqto.phases import say

_CREATING = "creating the store"


@contextlib.contextmanager
def counted_migrations() -> Iterator[None]:
    """Say how far a store is that is made within the block: it takes seconds."""
    logger, counter = logging.getLogger("alembic.runtime.migration"), _Counter()
    before = logger.level
    logger.addFilter(counter)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeFilter(counter)


class _Counter(logging.Filter):
    """Counts what alembic logs of its steps, and lets only warnings through."""

    def __init__(self) -> None:
        super().__init__()
        self._done = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a step; tell whether the record is to be seen."""
        if str(record.msg).startswith("Running "):
            say(_CREATING, self._done, _steps())
            self._done += 1
        return record.levelno >= logging.WARNING


@functools.cache
def _steps() -> int:
    versions = Path(mlflow.store.db_migrations.__path__[0]) / "versions"
    return len([each for each in versions.glob("*.py") if each.name != "__init__.py"])
