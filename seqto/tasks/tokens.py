"""A token, or a label, at each position."""

from typing import Any

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import DatasetError
from seqto.metrics.intervals import bootstrap
from seqto.metrics.positions import (
    Positions,
    TokenDivergence,
    TokenLoss,
    position_rows,
    top_tokens,
)
from seqto.metrics.scoring import macro_f1
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import check_count
from seqto.types import Estimate, Outputs, Targets

IGNORED = -100
"""The target of a position that does not count, as in PyTorch."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Tokens:
    """Scores of a vocabulary, or of labels, at each position, of which the highest counts."""

    name: str = "tokens"
    positions: Positions = "all"

    @property
    def metric(self) -> Metric:
        """How many positions have another token."""
        return TokenLoss(positions=self.positions)

    def harm(self, reference: Outputs) -> Harm:
        """Return the KL divergence per position."""
        return TokenDivergence(reference, self.positions)

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return accuracy and macro F1 over positions, against the right token of each one."""
        rows = position_rows(outputs, self.positions)
        check_count(targets, len(rows))
        wanted = [self._wanted(*each) for each in zip(targets, rows, strict=True)]
        samples = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
        labels, found = np.concatenate(wanted), np.concatenate([top_tokens(each) for each in rows])
        counted = labels != IGNORED
        if not counted.any():
            raise DatasetError(
                f"every target is {IGNORED}, which means that its position does not count: give "
                "the right token of some positions, or no targets."
            )
        right = samples[counted & (labels == found)]
        hits, totals = (
            np.bincount(each, minlength=len(rows)) for each in (right, samples[counted])
        )
        return {
            "accuracy": _ratio(hits, totals),
            "f1": macro_f1(samples[counted], found[counted], labels[counted]),
        }

    def _wanted(self, target: Any, rows: np.ndarray) -> np.ndarray:
        """Return the right token of each position; refuse what is no token of the model."""
        labels = np.atleast_1d(np.asarray(target))
        if self.positions == "last":
            labels = labels[-1:]
        if labels.shape != (len(rows),) or labels.dtype.kind not in "iu":
            raise DatasetError(
                f"a target is {labels.dtype} of the shape {list(labels.shape)}, but task=tokens "
                f"expects {len(rows)} whole numbers there: the right token of each position, or "
                f"{IGNORED} where none counts."
            )
        wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= rows.shape[1]))]
        if len(wrong):
            raise DatasetError(
                f"a target is the token {wrong[0]}, but the model has the tokens 0 to "
                f"{rows.shape[1] - 1}: give tokens in the model's own numbering, or {IGNORED}."
            )
        return labels.astype(np.int64)


def _ratio(hits: np.ndarray, totals: np.ndarray) -> Estimate:
    """Return the share of hits in all positions, whose number differs between samples."""

    def statistic(indices: np.ndarray) -> float:
        count = totals[indices].sum()
        return float(hits[indices].sum() / count) if count else float("nan")

    return bootstrap(statistic, len(hits))
