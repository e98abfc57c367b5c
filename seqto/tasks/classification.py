"""One class per sample."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.metrics.agreement import Top1Agreement, TopKAgreement, class_rows
from seqto.metrics.harm import Divergence
from seqto.metrics.margins import expected_changes
from seqto.metrics.scoring import label_scores
from seqto.protocols import Harm, Metric
from seqto.tasks.labels import class_labels, same_for_all
from seqto.types import Estimate, Outputs, Targets


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Classification:
    """A row of class scores per sample, logits or probabilities, of which the highest counts."""

    name: str = "classification"
    top_k: Annotated[int, Field(ge=1)] | None = None

    @property
    def metric(self) -> Metric:
        """How often the top class changes, or with `top_k` how many of the top k."""
        return Top1Agreement() if self.top_k is None else TopKAgreement(k=self.top_k)

    def harm(self, reference: Outputs) -> Harm:
        """Return the KL divergence of the classes' distribution."""
        return Divergence(reference)

    def expected_loss(self, reference: Outputs, before: Outputs, after: Outputs) -> float | None:
        """Return how often the top class would change; not known of several top classes."""
        return expected_changes(reference, before, after) if self.top_k is None else None

    def remark(self, reference: Outputs) -> str:
        """Say so if the float model tells no samples apart."""
        return same_for_all(class_rows(reference).argmax(axis=1), "class")

    def scores(self, outputs: Outputs, targets: Targets) -> dict[str, Estimate]:
        """Return accuracy and macro F1 against class numbers."""
        rows = class_rows(outputs)
        labels = class_labels(targets, rows.shape[1], len(rows))
        return label_scores(rows.argmax(axis=1), labels)
