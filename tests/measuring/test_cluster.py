"""Joining a cluster of ray that is busy, or asks for a token. Studies on one: tests/test_ray.py."""

import os
from pathlib import Path

import pytest

from seqto.errors import ConfigError
from seqto.measuring.cluster import connected

ray = pytest.importorskip("ray", reason="needs seqto[ray]")

BUSY = ConnectionAbortedError("Initialization failure from server:\nTraceback:\nE: no server yet.")
"""What ray raises when the head did not start this driver's server in time."""


class Head:
    """Refuses as often as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
        self.asked, self._refusals = 0, refusals
        monkeypatch.setattr(ray, "init", self._init)
        monkeypatch.setattr(ray, "shutdown", lambda: None)

    def _init(self, **given: object) -> None:
        self.asked += 1
        if self.asked <= self._refusals:
            raise BUSY


def test_busy_head_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, refusals=2)
    with connected({"address": "auto"}):
        assert head.asked == 3


def test_head_that_stays_busy_is_told_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, refusals=100)
    with (
        pytest.raises(ConfigError, match=r"joined at auto \(E: no server yet\): "),
        connected({"address": "auto"}),
    ):
        pass
    assert head.asked < 10


@pytest.mark.parametrize("token", [False, True])
def test_token_is_sent_where_there_is_one(
    token: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    Head(monkeypatch, refusals=0)
    monkeypatch.setattr("seqto.measuring.cluster._check_answers", lambda address: None)
    with connected({"address": "ray://head:10001"}):
        assert os.environ.get("RAY_AUTH_MODE") == ("token" if token else None)
