"""Scores of a vocabulary for each position of a text, or of another sequence."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.metrics.agreement import usable
from seqto.metrics.entries import Entries, misfit, only_output
from seqto.metrics.harm import WORST, are_distributions, kl
from seqto.types import Outputs

Positions = Literal["all", "last"]

NONE = -1
"""The token of a position whose scores are not usable."""

_VALUES = 2**20
"""Values compared at a time: with 50,000 tokens a whole text would fill the memory."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class TokenLoss:
    """How many positions have another top token than with the float model."""

    name: str = "tokens"
    positions: Positions = "all"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the share of each sample's positions that differ."""
        wanted, found = (position_rows(each, self.positions) for each in (reference, outputs))
        return np.array([_differing(*each) for each in zip(wanted, found, strict=True)])


class TokenDivergence:
    """The KL divergence of the tokens' distribution from the float model's, mean over positions."""

    name = "kl"

    def __init__(self, reference: Outputs, positions: Positions = "all") -> None:
        self._positions = positions
        self._reference = position_rows(reference, positions)
        parts = (part for rows in self._reference for (part,) in _parts(rows))
        self._distributions = all(are_distributions(part) for part in parts)

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the mean divergence of each sample's positions."""
        found = position_rows(outputs, self._positions)
        pairs = zip(self._reference[: len(found)], found, strict=True)
        return np.array([self._of(wanted, rows) for wanted, rows in pairs])

    def _of(self, wanted: np.ndarray, rows: np.ndarray) -> float:
        shared = min(len(wanted), len(rows))
        parts = _parts(wanted[:shared], rows[:shared])
        harms = [kl(one, two, self._distributions) for one, two in parts]
        # Positions that only one of them has are as wrong as can be.
        total = sum(float(each.sum()) for each in harms) + WORST * abs(len(wanted) - len(rows))
        return total / max(len(wanted), len(rows), 1)


def top_tokens(rows: np.ndarray) -> np.ndarray:
    """Return the token with the highest score at each position."""
    if not len(rows):
        return np.zeros(0, np.int64)
    return np.where(usable(rows), rows.argmax(axis=1), NONE)


def position_rows(outputs: Outputs, positions: Positions) -> list[np.ndarray]:
    """Return each sample's scores, `[positions, tokens]`, or only those of the last position."""
    name, entries = only_output(outputs)
    rows = [_without_batch(each) for each in entries]
    if any(each.ndim != 2 or each.shape[1] < 2 or each.dtype.kind in "iub" for each in rows):
        raise _no_positions(name, entries)
    if len({each.shape[1] for each in rows}) > 1:
        raise _no_positions(name, entries)
    return [each[-1:] for each in rows] if positions == "last" else rows


def _without_batch(entry: np.ndarray) -> np.ndarray:
    entry = np.asarray(entry)
    while entry.ndim > 2 and entry.shape[0] == 1:
        entry = entry[0]
    return entry


def _differing(wanted: np.ndarray, found: np.ndarray) -> float:
    theirs, ours = top_tokens(wanted), top_tokens(found)
    shared, longest = min(len(theirs), len(ours)), max(len(theirs), len(ours))
    differs = (theirs[:shared] != ours[:shared]) & (theirs[:shared] != NONE)
    return float(differs.sum() + longest - shared) / max(longest, 1)


def _parts(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Return the arrays' rows, as many at a time as fit into memory."""
    step = max(1, _VALUES // arrays[0].shape[1])
    for start in range(0, len(arrays[0]), step):
        yield tuple(each[start : start + step] for each in arrays)


def _no_positions(name: str, entries: Entries) -> Exception:
    return misfit(
        name,
        entries,
        "task=tokens and task=text expect scores of the same tokens at each position, [positions, "
        "tokens]. Use task=classification for one row per sample, or choose another output with "
        "'model.outputs=[...]'",
    )
