"""Runs the command line in this process, in an empty folder."""

import gc
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command, command_in
from mlflow_store import migrated_store

__all__ = ["cache", "migrated_store", "seqto"]


def pytest_configure() -> None:
    """Let Ctrl-C through, which tests send: a shell has what runs in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have the most slow tests, so that both workers end together."""
    slow = Counter(each.path for each in items if each.get_closest_marker("slow"))
    items.sort(key=lambda each: -slow[each.path])


def pytest_collection_finish() -> None:
    """Keep the collector from looking at half a million objects again and again that stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def seqto(cache: Path, migrated_store: Path, tmp_path: Path) -> Iterator[Command]:
    with command_in(tmp_path, cache, migrated_store) as command:
        yield command
