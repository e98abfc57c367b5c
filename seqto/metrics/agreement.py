"""Agreement of a candidate's predictions with the float model's."""

from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, ModelError


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Top1Agreement:
    """How often the top prediction differs."""

    name: str = "top1"

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the share of samples whose top class is not the float model's."""
        return float(np.mean(top1(reference) != top1(outputs)))


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class TopKAgreement:
    """How much of the top k differs, ignoring their order."""

    name: str = "topk"
    k: Annotated[int, Field(ge=1)] = 5

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the mean share of the float model's top k classes that the candidate misses."""
        classes = class_scores(reference).shape[-1]
        if self.k >= classes:
            raise ConfigError(
                f"metric.k={self.k} compares every class of an output with {classes}: "
                f"nothing could differ. Choose metric.k below {classes}."
            )
        wanted, found = _top_k(reference, self.k), _top_k(outputs, self.k)
        shared = (wanted[..., :, None] == found[..., None, :]).any(axis=-1)
        # Not 1 - hits: rounding would make a loss of 1 % miss a limit of 0.01.
        return float(np.mean(~shared))


def top1(outputs: np.ndarray) -> np.ndarray:
    """Return the top class of each sample."""
    return np.asarray(class_scores(outputs).argmax(axis=-1))


def class_scores(outputs: np.ndarray) -> np.ndarray:
    """Return the outputs with the classes last, without the axes of length 1 of pooling heads."""
    while outputs.ndim > 2 and outputs.shape[-1] == 1:
        outputs = outputs[..., 0]
    if outputs.ndim < 2 or outputs.shape[-1] < 2:
        raise ModelError(
            f"the model's first output has the shape {list(outputs.shape)}: one value per sample "
            "has no top class. seqto takes classifiers, with a score for each class."
        )
    return outputs


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of samples whose top class is their label."""
    return float(np.mean(top1(outputs) == labels))


def _top_k(outputs: np.ndarray, k: int) -> np.ndarray:
    # Stable, so that equal scores give the same classes in both models.
    return np.argsort(-class_scores(outputs), axis=-1, kind="stable")[..., :k]
