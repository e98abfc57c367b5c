"""Yes or no for each sample."""

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.metrics.agreement import usable
from seqto.metrics.flips import BinaryDivergence, Flips, columns, reading
from seqto.metrics.intervals import bootstrap, mean_of
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import class_labels, same_for_all
from seqto.types import Estimate, Outputs, Targets


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Binary:
    """One value per sample, or two class scores, and the threshold above which it means yes."""

    name: str = "binary"
    threshold: float | None = None

    @property
    def metric(self) -> Metric:
        """How often a decision changes."""
        return Flips(threshold=self.threshold)

    def harm(self, reference: Outputs) -> Harm:
        """Return the KL divergence of the two classes' distribution."""
        return BinaryDivergence(reference, self.threshold)

    def remark(self, reference: Outputs) -> str:
        """Say so if the float model tells no samples apart."""
        values = columns(reference)
        return same_for_all(reading(values, self.threshold).positive(values), "decision")

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return F1 of the positive class and accuracy, against targets that are 0 or 1.

        F1 is left out if no target is positive.
        """
        values = columns(outputs)
        labels = class_labels(targets, 2, len(values)).astype(bool)
        read = reading(values, self.threshold)
        found = read.positive(values)
        right = (found == labels) & usable(read.rows(values))
        figures = {"accuracy": mean_of(right.astype(np.float64))}
        return {"f1": _f1(found & right, found, labels), **figures} if labels.any() else figures


def _f1(hits: np.ndarray, found: np.ndarray, labels: np.ndarray) -> Estimate:
    def statistic(indices: np.ndarray) -> float:
        possible = found[indices].sum() + labels[indices].sum()
        return float(2 * hits[indices].sum() / possible) if possible else float("nan")

    return bootstrap(statistic, len(labels))
