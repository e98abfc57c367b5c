"""Figures of predicted labels beside the right ones, with their intervals."""

import numpy as np

from seqto.metrics.intervals import bootstrap, mean_of
from seqto.types import Estimate


def label_scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, Estimate]:
    """Return accuracy and macro F1 of one predicted label per sample."""
    samples = np.arange(len(labels))
    return {
        "accuracy": mean_of((predicted == labels).astype(np.float64)),
        "f1": macro_f1(samples, predicted, labels),
    }


def macro_f1(samples: np.ndarray, predicted: np.ndarray, labels: np.ndarray) -> Estimate:
    """Return the mean F1 of all labels that are predicted or right somewhere.

    All arguments have one value per prediction: its sample, numbered from 0, and two labels.
    Samples are resampled as a whole, since the predictions within one are not independent.
    """
    known, numbers = np.unique(np.concatenate([predicted, labels]), return_inverse=True)
    cases = np.stack([samples, *np.split(numbers.ravel(), 2)])
    # Equal cases are counted once here, not in each of the resamples.
    (samples, predicted, labels), counts = np.unique(cases, axis=1, return_counts=True)
    right = predicted == labels
    total = int(samples.max()) + 1

    def statistic(indices: np.ndarray) -> float:
        weights = np.bincount(indices, minlength=total)[samples] * counts
        found = np.bincount(predicted, weights, len(known))
        wanted = np.bincount(labels, weights, len(known))
        hits = np.bincount(predicted[right], weights[right], len(known))
        present = found + wanted > 0
        return float(np.mean(2 * hits[present] / (found + wanted)[present]))

    return bootstrap(statistic, total)
