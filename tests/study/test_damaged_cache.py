"""A study does not believe its cache: what is damaged there is made again, and nothing changes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_studies import Lab

from seqto.measuring.subject import prepare_subject
from seqto.search.budget import BudgetSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.tracking.memory import MemoryTracker
from seqto.workspace import kept

SEAL = len('\n"seqto:"\n') + 64


def reversed_rows(path: Path) -> None:
    """Write the same arrays, the last row first, as a user or another program would."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(path, **{name: each[::-1] for name, each in arrays.items()})
    else:
        path.write_text(path.read_text().replace("0.", "1."))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def misplaced(path: Path) -> None:
    """Put a file of another key in its place, with a seal that fits to its content."""
    other = path.with_name(f"another{path.suffix}")
    content = path.read_bytes()

    def write(temporary: Path) -> None:
        temporary.write_bytes(content[:-SEAL])

    kept(other, write)
    assert other.read_bytes()[:-SEAL] == content[:-SEAL]
    other.replace(path)


def figures(lab: Lab) -> list[object]:
    outcome = lab.run(MemoryTracker())
    untimed = [
        [trial.candidate.key, trial.model_sha256, trial.losses, trial.metrics["accuracy_loss"]]
        for trial in outcome.record.trials
    ]
    return [untimed, outcome.record.scores, [each.candidate.key for each in outcome.front.members]]


@pytest.mark.parametrize("damage", [reversed_rows, truncated, misplaced])
def test_the_answer_is_the_same(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    own = {"search": BudgetSearch(evaluations=4), "sensitivity": DivergenceSensitivity(samples=4)}
    lab = Lab.at(tmp_path, **own)
    before = figures(lab)
    files = [each for each in lab.workspace.root.rglob("*") if each.suffix in (".json", ".npz")]
    assert {"reference", "ranges", "scores", "learned"} <= {each.parent.name for each in files}
    assert any(each.parent.parent.name == "screens" for each in files)
    for path in files:
        damage(path)
    again = Lab(lab.parts, prepare_subject(lab.parts, lab.workspace), lab.workspace, lab.device)
    assert figures(again) == before
    told = [record.getMessage() for record in caplog.records]
    assert all(any(str(path) in line for line in told) for path in files)
