"""Which samples a study uses: drawn once with a seed, without duplicates."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

import numpy as np
from pydantic import PositiveInt

from seqto.errors import DatasetError
from seqto.identity import identity
from seqto.phases import say
from seqto.types import Arrays, Samples, Splits, Targets, content_key

_log = logging.getLogger(__name__)

CalibrationSize = PositiveInt | None
"""How many samples calibrate; None: 100, or a quarter of fewer than 400."""

EvaluationSize = PositiveInt | Literal["all"] | None
"""How many samples evaluate; None: 300, or all that are left of fewer."""

_CALIBRATION, _EVALUATION = 100, 300
"""How many samples are used by default, if there are enough."""

_FEWEST = 20
"""With fewer samples, a single one that changes already exceeds a limit of 5 %."""

_LOSS = 0.02
"""The loss that certainty is told for."""


@dataclass(frozen=True)
class Drawn:
    """The drawn samples' indices in their pool, in order, by a digest of their content.

    The first `calibration` of them are for calibration.
    """

    indices: Mapping[str, int]
    calibration: int

    @property
    def order(self) -> list[int]:
        """The indices in the order drawn."""
        return list(self.indices.values())


@dataclass(frozen=True)
class Draw:
    """How many samples to calibrate and to evaluate on, as `dataset.*_size` say it.

    `where` names the pool in messages, and `noun` what it holds.
    """

    calibration: int | None
    evaluation: int | str | None
    seed: int
    where: str
    noun: str = "samples"

    def of(self, total: int, digest: Callable[[int], str]) -> Drawn:
        """Return the samples to use from a pool of `total`, those for calibration first."""
        # Before anything is read, where the sizes tell already.
        self._calibration(total, "")
        drawn: dict[str, int] = {}
        duplicates, wanted = 0, min(total, self.most or total)
        for index in map(int, np.random.RandomState(self.seed).permutation(total)):
            if len(drawn) == self.most:
                break
            say("reading samples", len(drawn), wanted)
            duplicates += drawn.setdefault(digest(index), index) != index
        if duplicates:
            copies = (
                "is a copy of another and is" if duplicates == 1 else "are copies of others and are"
            )
            _log.warning(
                "%s: %d %s %s left out.", self.where, duplicates, self._noun(duplicates), copies
            )
        calibration = self._calibration(len(drawn), "different ")
        self._say_certainty(len(drawn), calibration)
        return Drawn(drawn, calibration)

    @property
    def most(self) -> int | None:
        """The most samples to draw; None for all."""
        if isinstance(self.evaluation, str):
            return None
        return (self.calibration or _CALIBRATION) + (self.evaluation or _EVALUATION)

    def _calibration(self, found: int, kind: str) -> int:
        """Return how many of so many samples calibrate; raise if they are too few."""
        if self._takes_few(found):
            if found < _FEWEST:
                raise DatasetError(
                    f"{self.where} has {found} {kind}{self._noun(found)}, too few to calibrate and "
                    f"to evaluate on: give {_FEWEST} or more, {_CALIBRATION + _EVALUATION} for "
                    "figures to rely on."
                )
            return found // 4
        calibration = self.calibration or _CALIBRATION
        least = self.evaluation if isinstance(self.evaluation, int) else 1
        if found < calibration + least:
            evaluation = least if isinstance(self.evaluation, int) else f"at least {least}"
            raise DatasetError(
                f"{self.where} has {found} {kind}{self._noun(found)}, but {calibration} to "
                f"calibrate and {evaluation} to evaluate on are needed: add {self.noun}, or lower "
                "dataset.calibration_size and dataset.evaluation_size."
            )
        return calibration

    def _takes_few(self, found: int) -> bool:
        """Tell whether samples are fewer than usual, and no size says how to take them."""
        open_ended = self.calibration is None and not isinstance(self.evaluation, int)
        return open_ended and found < _CALIBRATION + _EVALUATION

    def _say_certainty(self, found: int, calibration: int) -> None:
        """Say what few samples cost, where nobody has asked for so few."""
        if not self._takes_few(found):
            return
        evaluation = found - calibration
        _log.warning(
            "%s has %d %s: %d calibrate and %d evaluate. A loss of %.0f %% is then known to within "
            "%.1f points; with %d %s, to within %.1f.",
            *(self.where, found, self.noun, calibration, evaluation, 100 * _LOSS),
            *(_margin(evaluation), _CALIBRATION + _EVALUATION, self.noun, _margin(_EVALUATION)),
        )

    def _noun(self, count: int) -> str:
        return self.noun.removesuffix("s") if count == 1 else self.noun


def _margin(samples: int) -> float:
    """Return how far off a loss of so many samples may be, in points, 19 times of 20."""
    return 100 * 1.96 * math.sqrt(_LOSS * (1 - _LOSS) / samples)


def split_drawn(inputs: Arrays, targets: Targets | None, drawn: Drawn) -> Splits:
    """Return the splits of the drawn samples, taken from arrays of the whole pool."""
    order = drawn.order
    taken = {name: array[order] for name, array in inputs.items()}
    return split_arrays(taken, _taken(targets, order), drawn)


def split_arrays(
    inputs: Arrays,
    targets: Targets | None,
    drawn: Drawn,
    mask: np.ndarray | None = None,
) -> Splits:
    """Split arrays that hold the drawn samples in order."""
    targets = _uniform(targets)
    ids = [f"sample-{index:05}" for index in drawn.order]

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
        calibration=part(slice(drawn.calibration)),
        evaluation=part(slice(drawn.calibration, None)),
        fingerprint=content_key([shapes, list(drawn.indices), drawn.calibration, listed]),
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
