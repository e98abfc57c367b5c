"""Candidates that are stopped as soon as it is certain that they are not on the front.

A candidate that has lost as much on some of the samples as a smaller one loses on all of them is
dominated, whatever the other samples say. That is certain, not likely: no test is needed, and what
is stopped would not have changed the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqto.figures import LOSS
from seqto.measuring.loss import losses_of
from seqto.measuring.subject import Subject
from seqto.protocols import JudgesAlone
from seqto.types import Entry, Outputs, together

Losses = Sequence[float] | np.ndarray
"""The loss of each sample."""


@dataclass(frozen=True)
class Rival:
    """A measured candidate: the bytes of its model, and the losses of all samples together."""

    size: float
    lost: float

    @classmethod
    def of(cls, size: float, losses: Losses) -> "Rival":
        """Return what is to be known of a candidate of this size."""
        return cls(size, float(np.sum(losses)))


@dataclass(frozen=True)
class Stop:
    """Why a candidate was stopped, and what is known of it."""

    why: str
    figures: Mapping[str, float]


class Dominated(Exception):
    """A candidate cannot be on the front any more."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop = stop


class Watch:
    """Adds up what a candidate loses while it runs, and stops it once that is too much."""

    def __init__(self, subject: Subject, size: float, most: float, order: Sequence[int]) -> None:
        self._subject, self._size, self._most = subject, size, most
        self.order = order
        """The samples, those that are likely lost first."""
        # Samples may be seen again, where a model is run once more as a whole.
        self._losses = np.full(len(subject.samples), np.nan)
        self._check()

    def see(self, start: int, entries: Sequence[Entry]) -> None:
        """Take the outputs of the samples from `start` on; raise Dominated if that is enough."""
        some = slice(start, start + len(entries))
        reference: Outputs = {name: each[some] for name, each in self._subject.reference.items()}
        outputs = together(entries, len(entries))
        self._losses[some] = losses_of(self._subject.metric, reference, outputs)
        self._check()

    def _check(self) -> None:
        lost = float(np.nansum(self._losses))
        if lost < self._most:
            return
        total, seen = len(self._losses), int(np.isfinite(self._losses).sum())
        figures = {
            f"{LOSS}_low": lost / total,
            f"{LOSS}_high": (lost + total - seen) / total,
            "size_bytes": self._size,
            "size_ratio": self._size / self._subject.baseline["size_bytes"],
        }
        why = f"it loses at least {lost / total:.2%}, no less than a smaller candidate"
        raise Dominated(Stop(f"stopped after {seen} of {total} samples: {why}", figures))


@dataclass
class Contest:
    """The candidates of a study that only loss and size count for, as far as they are measured."""

    subject: Subject
    rivals: list[Rival]
    _losses: list[np.ndarray] = field(default_factory=list)

    def add(self, size: float, losses: Losses) -> None:
        """Let the next candidates be compared with one of this size."""
        self.rivals.append(Rival.of(size, losses))
        self._losses.append(np.asarray(losses))

    def confirms(self, stop: Stop) -> bool:
        """Tell whether one that is measured dominates what was stopped."""
        size, low = stop.figures["size_bytes"], stop.figures[f"{LOSS}_low"]
        most = low * len(self.subject.samples) + 1e-9
        return any(each.size <= size and each.lost <= most for each in self.rivals)

    def watch(self, size: float) -> Watch | None:
        """Return what stops a candidate of this size.

        None if nothing smaller is measured, or if losses are not known sample by sample.
        """
        metric = self.subject.metric
        if not (isinstance(metric, JudgesAlone) and metric.judges_alone):
            return None
        smaller = [each.lost for each in self.rivals if each.size <= size]
        if not smaller:
            return None
        count = len(self.subject.samples)
        often = np.sum(self._losses, axis=0) if self._losses else np.zeros(count)
        order = np.argsort(-often, kind="stable").tolist()
        return Watch(self.subject, size, min(smaller), order)
