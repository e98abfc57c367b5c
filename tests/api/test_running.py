"""What a study says while it runs."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.api.running import run_config
from seqto.config.compose import composed

STUDY = (
    *("search.evaluations=3", "search.budgets=4", "search.screens=4", "sensitivity.samples=4"),
    *("dataset=npz", "dataset.path=samples.npz", "device.warmup=0", "device.repeats=1"),
)


class Listener:
    """Hears everything, as a terminal does."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int | None]] = []

    def start(self) -> None:
        """Nothing to begin."""

    aside = nullcontext

    def introduce(self, study: Any) -> None:
        """Nothing to say about it."""

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        self.heard.append((what, done, total))

    def advance(self, trial: Any, done: int, total: int) -> None:
        self.say("measuring", done, total)

    @property
    def phases(self) -> list[str]:
        """The phases in their order, each once."""
        return list(dict.fromkeys(what for what, _, _ in self.heard))


@pytest.mark.slow
def test_every_phase_has_a_count(home: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    np.savez(home / "samples.npz", image=digits[0])
    (home / "mlflow.db").unlink()
    listener = Listener()
    run_config(composed(STUDY), listener, home)
    uncounted = {what for what, _, total in listener.heard if total is None}
    assert not uncounted
    assert all(0 <= done <= (total or 0) for _, done, total in listener.heard)
    assert listener.phases[:4] == [
        *("starting", "preparing the model", "reading samples", "trying the model"),
    ]
    rest = iter(listener.phases[4:])
    for each in ("opening the study", "creating the store", "choosing candidates", "measuring"):
        assert each in rest, f"{each} is not said, or not in its turn"
    migrated = [done for what, done, _ in listener.heard if what == "creating the store"]
    (steps,) = {total for what, _, total in listener.heard if what == "creating the store"}
    assert migrated == list(range(len(migrated))) and steps == len(migrated)
