"""The short form of `scripts/soak.py`: nothing is lost."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "soak.py"


@pytest.mark.slow
def test_nothing_is_lost() -> None:
    """Servers and nodes have tests of their own."""
    steps = ("kills", "cache", "configs", "models")
    command = [sys.executable, str(SCRIPT), "--short", "--only", ",".join(steps)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for step in steps:
        found = re.search(rf"^{step} +(\d+) tried, 0 lost", ended.stdout, re.MULTILINE)
        assert found and int(found[1]) > 1, ended.stdout
