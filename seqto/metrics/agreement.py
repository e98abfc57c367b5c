"""Agreement of a candidate's predictions with the float model's."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.metrics.entries import misfit, only_output, stacked
from seqto.types import Outputs


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Top1Agreement:
    """How often the top prediction differs."""

    name: str = "top1"
    judges_alone: ClassVar[bool] = True

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return 1 for each sample whose top class is not the float model's, else 0."""
        wanted, found = class_rows(reference), class_rows(outputs)
        return judged(wanted, found, wanted.argmax(axis=1) != found.argmax(axis=1))


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class TopKAgreement:
    """How much of the top k differs, ignoring their order."""

    name: str = "topk"
    judges_alone: ClassVar[bool] = True
    k: Annotated[int, Field(ge=1)] = 5

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        """Return the share of the float model's top k classes that the candidate misses."""
        wanted, found = class_rows(reference), class_rows(outputs)
        classes = wanted.shape[1]
        if self.k >= classes:
            raise ConfigError(
                f"metric.k={self.k} compares every class of an output with {classes}: nothing "
                f"could differ. Choose metric.k (or task.top_k) below {classes}."
            )
        theirs, ours = top_k(wanted, self.k), top_k(found, self.k)
        shared = (theirs[:, :, None] == ours[:, None, :]).any(axis=-1)
        # Not 1 - hits: rounding would make a loss of 1 % miss a limit of 0.01.
        return judged(wanted, found, (~shared).mean(axis=1))


def judged(wanted: np.ndarray, found: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the losses; 1 where a row of scores is no use, 0 where the float model's is none."""
    lost = np.where(usable(found), losses.astype(np.float64), 1.0)
    return np.where(usable(wanted), lost, 0.0)


def usable(rows: np.ndarray) -> np.ndarray:
    """Return which rows of class scores are usable; minus infinity only rules out a class."""
    return np.asarray(np.isfinite(rows.max(axis=-1)))


def class_rows(outputs: Outputs) -> np.ndarray:
    """Return the single output as one row of class scores per sample."""
    name, entries = only_output(outputs)
    return class_scores(stacked(name, entries), name)


def class_scores(outputs: np.ndarray, name: str = "") -> np.ndarray:
    """Return `[samples, classes]`, without the axes of length 1 that pooling heads leave."""
    outputs = np.asarray(outputs)
    rows = outputs.reshape(len(outputs), *(size for size in outputs.shape[1:] if size != 1))
    if rows.ndim == 1:
        use = "Use task=binary or task=regression"
        if outputs.dtype.kind != "f":
            use = "Choose the scores with 'model.outputs=[...]', or export the model with them"
        raise misfit(
            name,
            outputs,
            "one value per sample has no top class: classification expects a score for each "
            f"class. {use}",
        )
    if rows.ndim > 2:
        raise misfit(
            name,
            outputs,
            "classification expects one row of class scores per sample. Use task=segmentation, "
            "task=detection or task=tokens, or choose another output with 'model.outputs=[...]'",
        )
    return rows


def top1(outputs: np.ndarray) -> np.ndarray:
    """Return the top class of each sample."""
    return np.asarray(class_scores(outputs).argmax(axis=-1))


def top_k(rows: np.ndarray, k: int) -> np.ndarray:
    """Return the top k classes of each row, the highest first."""
    # Stable, so that equal scores give the same classes in both models.
    return np.argsort(-rows, axis=-1, kind="stable")[:, :k]
