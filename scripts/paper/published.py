"""The papers' published results, chosen from by seqto's `recommend=paper`.

The published tool recorded every candidate of 16 data sets (four models, two quantizations, two
devices) and which of them it chose. From the same candidates seqto has to choose the same. The
files are not part of seqto, because nothing says that they may be copied:
`published_candidates.csv` (model, device, quantization, index, dissimilarity_pct, size_mb) and
`published_choices.csv` (the same with rank).
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CANDIDATES, CHOICES = "published_candidates.csv", "published_choices.csv"

DataSet = tuple[str, str, str]
"""A model, a device and a quantization, by the papers' names."""

OBJECTIVES = ("accuracy_loss", "size_bytes")


@dataclass(frozen=True)
class Point:
    """A published candidate: its index, its dissimilarity in % and its size in MB."""

    index: int
    dissimilarity_pct: float
    size_mb: float


def compare(folder: Path, printed: Mapping[DataSet, Point]) -> bool:
    """Print seqto's choices beside the published ones; return whether all are the same.

    `printed` has the figures of the papers' tables, which are rounded.
    """
    candidates, published = read(folder / CANDIDATES), read(folder / CHOICES)
    firsts: list[bool] = []
    others: list[bool] = []
    total = sum(map(len, candidates.values()))
    print(f"{total} published candidates in {len(candidates)} data sets; chosen of each:\n")
    print(f"{'':43} {'here':>20} {'published':>20} {'printed in the paper':>21}")
    for data_set, choices in published.items():
        chosen = choose(candidates[data_set], len(choices))
        equal = [mine.index == theirs.index for mine, theirs in zip(chosen, choices, strict=True)]
        firsts.append(equal[0])
        others += equal[1:]
        name = " ".join(data_set)
        cells = (_shown(chosen[0]), _shown(choices[0]), _shown(printed[data_set], numbered=False))
        mark = "same" if equal[0] else "ANOTHER"
        print(f"{name:35} {mark:>7} {cells[0]:>20} {cells[1]:>20} {cells[2]:>21}")
    print(f"\nsecond and third choices that are the same: {sum(others)} of {len(others)}")
    print(f"first choices that are the same: {sum(firsts)} of {len(firsts)}")
    return all(firsts)


def choose(points: Sequence[Point], count: int) -> list[Point]:
    """Return the first choices of `recommend=paper`, the best first."""
    from seqto.pareto.front import find_front
    from seqto.types import Candidate, Trial, TrialState

    trials = [
        Trial(
            id=str(each.index),
            index=each.index,
            candidate=Candidate(()),
            state=TrialState.COMPLETE,
            metrics={"accuracy_loss": each.dissimilarity_pct / 100, "size_bytes": each.size_mb},
        )
        for each in points
    ]
    front = find_front(trials, OBJECTIVES, {}, count, "paper")
    by_index = {each.index: each for each in points}
    return [by_index[each.trial.index] for each in front.recommended]


def read(path: Path) -> dict[DataSet, list[Point]]:
    """Return the points of a published file in its order, by data set."""
    if not path.is_file():
        sys.exit(
            f"reproduce_paper: there is no {path}. Name the folder of the published results with "
            f"--published-data <folder>: it holds {CANDIDATES} and {CHOICES}, see {__file__}."
        )
    found: dict[DataSet, list[Point]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            data_set = (row["model"], row["device"], row["quantization"])
            point = Point(int(row["index"]), float(row["dissimilarity_pct"]), float(row["size_mb"]))
            found.setdefault(data_set, []).append(point)
    return found


def _shown(point: Point, numbered: bool = True) -> str:
    figures = f"{point.dissimilarity_pct:.2f} % {point.size_mb:.2f} MB"
    return f"#{point.index} {figures}" if numbered else figures
