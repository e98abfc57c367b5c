"""Where a run prints."""

import pytest

from seqto.cli.pointers import stdout_console


def test_files_and_pipes_have_wide_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert stdout_console().width == 120
    monkeypatch.setenv("COLUMNS", "73")
    monkeypatch.setattr("rich._console", None)
    assert stdout_console().width == 73
