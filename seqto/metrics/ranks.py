"""The paper's measure of how far predictions are apart."""

from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.metrics.agreement import class_scores


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class RankDissimilarity:
    """1 - (1 + tau) / 2, where tau is the weighted Kendall tau of the two lists of top classes.

    Like the paper, it treats class numbers as scores. So it depends on how classes are numbered,
    and two models that agree on the top class may be far apart. It is here to compare with the
    paper's figures; `top1` says how often predictions change.
    """

    name: str = "paper"
    k: Annotated[int, Field(ge=2)] = 5

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the mean dissimilarity of the samples, from 0 to 1."""
        # Imported here, because the import takes longer than all other metrics.
        from scipy.stats import weightedtau

        wanted, found = self._top(reference), self._top(outputs)
        taus = [
            1.0 if np.array_equal(one, two) else float(weightedtau(one, two).statistic)
            for one, two in zip(wanted, found, strict=True)
        ]
        return float(np.mean([1 - (1 + tau) / 2 for tau in taus]))

    def _top(self, outputs: np.ndarray) -> np.ndarray:
        """Return each sample's top classes, the highest first."""
        scores = class_scores(outputs)
        classes = scores.shape[-1]
        if self.k > classes:
            raise ConfigError(
                f"metric.k={self.k} is more than the {classes} classes of the model's output: "
                f"choose metric.k from 2 to {classes}."
            )
        rows = scores.reshape(-1, classes)
        # Stable, so that equal scores give the same order in both models.
        return np.argsort(-rows, axis=-1, kind="stable")[:, : self.k]
