"""The paper's measure of how far predictions are apart."""

from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.metrics.agreement import class_rows, judged, top_k
from seqto.types import Outputs


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class RankDissimilarity:
    """1 - (1 + tau) / 2, where tau is the weighted Kendall tau of the two lists of top classes.

    Like the paper, it treats class numbers as scores. So it depends on how classes are numbered,
    and two models that agree on the top class may be far apart. It is here to compare with the
    paper's figures; `top1` says how often predictions change.
    """

    name: str = "paper"
    k: Annotated[int, Field(ge=2)] = 5

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the dissimilarity of each sample, from 0 to 1."""
        # Imported here, because the import takes longer than all other metrics.
        from scipy.stats import weightedtau

        wanted, found = class_rows(reference), class_rows(outputs)
        self._check(wanted.shape[1])
        taus = [
            1.0 if np.array_equal(one, two) else float(weightedtau(one, two).statistic)
            for one, two in zip(top_k(wanted, self.k), top_k(found, self.k), strict=True)
        ]
        return judged(wanted, found, 1 - (1 + np.array(taus)) / 2)

    def _check(self, classes: int) -> None:
        if self.k > classes:
            raise ConfigError(
                f"metric.k={self.k} is more than the {classes} classes of the model's output: "
                f"choose metric.k from 2 to {classes}."
            )
