"""The accuracy loss, as the metric gives it."""

import math

import numpy as np

from seqto.errors import MetricError, SeqtoError
from seqto.protocols import Metric


def loss_of(metric: Metric, reference: np.ndarray, outputs: np.ndarray) -> float:
    """Return the metric's loss; a MetricError is no fault of the candidate."""
    try:
        loss = float(metric.loss(reference, outputs))
    except SeqtoError as error:
        raise MetricError(str(error)) from error
    except Exception as error:  # Whatever a user's own metric raises.
        raise MetricError(
            f"metric {metric.name} raised {type(error).__name__}: {error}. It gets the outputs of "
            f"the float model and of a candidate, arrays of shape {list(reference.shape)}, and has "
            "to return one number from 0 to 1."
        ) from error
    if not 0 <= loss <= 1 or math.isnan(loss):
        raise MetricError(
            f"metric {metric.name} returned {loss}: a loss is a number from 0 (the same) to 1."
        )
    return loss


def check_metric(metric: Metric, reference: np.ndarray) -> None:
    """Raise where the metric cannot be used with these outputs, or finds them unlike themselves."""
    loss = loss_of(metric, reference, reference)
    if loss != 0:
        raise MetricError(
            f"metric {metric.name} gives a loss of {loss:g} where a candidate's outputs are the "
            "float model's own: it has to be 0 there."
        )
