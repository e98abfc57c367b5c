"""A vector per sample, whose direction counts."""

from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError
from seqto.metrics.cosine import CosineLoss, NeighbourLoss, Pooling, Turn, directions, similarities
from seqto.metrics.intervals import mean_of
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import check_count
from seqto.types import Estimate, Outputs, Targets


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Embedding:
    """A vector per sample, or one per position with `pooling`, compared with others by cosine."""

    name: str = "embedding"
    pooling: Pooling | None = None
    loss: Literal["cosine", "neighbour"] = "cosine"
    k: Annotated[int, Field(ge=1)] = 1

    @property
    def metric(self) -> Metric:
        """One minus the cosine, or how often the nearest sample changes."""
        kind = CosineLoss if self.loss == "cosine" else NeighbourLoss
        return kind(pooling=self.pooling)

    def harm(self, reference: Outputs) -> Harm:
        """Return one minus the cosine."""
        return Turn(reference, self.pooling)

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return how often one of the k nearest samples has the same target (recall at k).

        Targets are numbers or names of groups; a sample that is alone in its group cannot be
        found, and does not count.
        """
        rows = directions(outputs, self.pooling)
        groups = self._groups(targets, len(rows))
        _, own, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        found = [
            (own[block] == own[start + np.arange(len(block))][:, None]).any(axis=1)
            for start, block in self._nearest(rows)
        ]
        known = np.isfinite(rows[:, 0])
        return {"recall": mean_of((np.concatenate(found) & known)[sizes[own] > 1].astype(float))}

    def _nearest(self, rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the k nearest samples of each, in blocks with the number of their first one."""
        blocks, start = [], 0
        for similar in similarities(rows):
            blocks.append((start, np.argsort(-similar, axis=1, kind="stable")[:, : self.k]))
            start += len(similar)
        return blocks

    def _groups(self, targets: Targets, samples: int) -> np.ndarray:
        check_count(targets, samples)
        if any(np.size(each) != 1 for each in targets):
            raise DatasetError(
                "task=embedding expects one number or name per sample as its target: its group."
            )
        groups = np.array([str(np.asarray(each).item()) for each in targets])
        if self.k >= samples or len(set(groups)) == samples:
            raise DatasetError(
                f"recall cannot be measured on {samples} samples of {len(set(groups))} groups with "
                f"task.k={self.k}: give more samples than k, at least two of them of one group."
            )
        return groups
