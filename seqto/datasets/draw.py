"""Which samples a study uses: drawn once with a seed, without duplicates."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from seqto.errors import DatasetError
from seqto.identity import identity
from seqto.types import Arrays, Samples, Splits, Targets, content_key

_log = logging.getLogger(__name__)

Drawn = Mapping[str, int]
"""The drawn samples' indices in their pool, in order, by a digest of their content."""


@dataclass(frozen=True)
class Draw:
    """How many samples to calibrate and to evaluate on; None means all that calibration leaves.

    `where` names the pool in messages, and `noun` what it holds.
    """

    calibration: int
    evaluation: int | None
    seed: int
    where: str
    noun: str = "samples"

    def of(self, total: int, digest: Callable[[int], str]) -> Drawn:
        """Return the samples to use from a pool of `total`, those for calibration first."""
        needed = self.calibration + (self.evaluation or 1)
        self._require(total >= needed, total, "")
        drawn: dict[str, int] = {}
        duplicates = 0
        for index in map(int, np.random.RandomState(self.seed).permutation(total)):
            if self.evaluation is not None and len(drawn) == needed:
                break
            duplicates += drawn.setdefault(digest(index), index) != index
        if duplicates:
            copies = (
                "is a copy of another and is" if duplicates == 1 else "are copies of others and are"
            )
            _log.warning(
                "%s: %d %s %s left out.", self.where, duplicates, self._noun(duplicates), copies
            )
        self._require(len(drawn) >= needed, len(drawn), "different ")
        return drawn

    def _noun(self, count: int) -> str:
        return self.noun.removesuffix("s") if count == 1 else self.noun

    def _require(self, enough: bool, found: int, kind: str) -> None:
        if not enough:
            evaluation = "at least 1" if self.evaluation is None else self.evaluation
            raise DatasetError(
                f"{self.where} has {found} {kind}{self._noun(found)}, but {self.calibration} to "
                f"calibrate and {evaluation} to evaluate on are needed: add {self.noun}, or lower "
                "dataset.calibration_size and dataset.evaluation_size."
            )


def split_drawn(
    inputs: Arrays, targets: Targets | None, drawn: Drawn, calibration_size: int
) -> Splits:
    """Return the splits of the drawn samples, taken from arrays of the whole pool."""
    order = list(drawn.values())
    taken = {name: array[order] for name, array in inputs.items()}
    return split_arrays(taken, _taken(targets, order), drawn, calibration_size)


def split_arrays(
    inputs: Arrays,
    targets: Targets | None,
    drawn: Drawn,
    calibration_size: int,
    mask: np.ndarray | None = None,
) -> Splits:
    """Split arrays that hold the drawn samples in order."""
    targets = _uniform(targets)
    ids = [f"sample-{index:05}" for index in drawn.values()]

    def part(chosen: slice) -> Samples:
        return Samples(
            {name: array[chosen] for name, array in inputs.items()},
            tuple(ids[chosen]),
            None if targets is None else targets[chosen],
            None if mask is None else mask[chosen],
        )

    shapes = {name: [array.dtype.name, *array.shape] for name, array in inputs.items()}
    listed = targets.tolist() if _are_classes(targets) else identity(targets)
    return Splits(
        calibration=part(slice(calibration_size)),
        evaluation=part(slice(calibration_size, None)),
        fingerprint=content_key([shapes, list(drawn), calibration_size, listed]),
    )


def _taken(targets: Targets | None, order: Sequence[int]) -> Targets | None:
    """Return the targets of these samples."""
    if targets is None:
        return None
    if isinstance(targets, np.ndarray):
        return targets[order]
    return tuple(targets[index] for index in order)


def _uniform(targets: Targets | None) -> Targets | None:
    """Return class indices as an array of int64, whatever integers they were."""
    return targets.astype(np.int64) if _are_classes(targets) else targets


def _are_classes(targets: Targets | None) -> TypeGuard[np.ndarray]:
    return isinstance(targets, np.ndarray) and targets.ndim == 1 and targets.dtype.kind in "iu"
