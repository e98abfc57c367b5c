"""Logs show no secrets, and one line an outage."""

import contextlib
import io
import logging
from collections.abc import Iterator

import pytest

from seqto.logs import CalmFilter, MaskedFormatter


@contextlib.contextmanager
def handler_to(out: io.StringIO) -> Iterator[None]:
    """Let a handler as in the configs write there."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(MaskedFormatter("%(message)s"))
    handler.addFilter(CalmFilter())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Return what one of two handlers writes, as where there is also a log file."""
    out = io.StringIO()
    with handler_to(out), handler_to(io.StringIO()):
        yield out


def test_secrets_are_masked_also_in_tracebacks(lines: io.StringIO) -> None:
    try:
        raise ValueError("no http://ann:Tr0ub4dor@host")
    except ValueError:
        logging.getLogger("x").exception("asked %s", "http://ann:Tr0ub4dor@host")
    assert "Tr0ub" not in lines.getvalue()
    assert lines.getvalue().count("http://***@host") == 3
    assert "Traceback" in lines.getvalue()


def test_attempts_to_reach_a_server_are_one_line(lines: io.StringIO) -> None:
    log = logging.getLogger("urllib3.connectionpool")
    for total in range(5):
        log.warning("Retrying (JsonRetry(total=%d)) after connection broken", total)
    log.error("all is lost")
    logging.getLogger("x").warning("another")
    assert lines.getvalue().splitlines() == [
        "A server does not answer: waiting for it to come back.",
        "all is lost",
        "another",
    ]
