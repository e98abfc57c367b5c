"""The accuracy losses of the samples, as the metric gives them."""

import numpy as np

from seqto.errors import MetricError, SeqtoError
from seqto.protocols import Metric
from seqto.types import Outputs


def losses_of(metric: Metric, reference: Outputs, outputs: Outputs) -> np.ndarray:
    """Return the metric's loss of each sample; a MetricError is no fault of the candidate."""
    count = len(next(iter(reference.values())))
    try:
        losses = np.asarray(metric.losses(reference, outputs), np.float64)
    except SeqtoError as error:
        raise MetricError(str(error)) from error
    except Exception as error:  # Whatever a user's own metric raises.
        raise MetricError(
            f"metric {metric.name} raised {type(error).__name__}: {error}"
            f"{_where(metric, reference, outputs, count)}. {_contract(reference, count)}"
        ) from error
    if losses.shape != (count,):
        raise MetricError(
            f"metric {metric.name} returned {_shown(losses)}. {_contract(reference, count)}"
        )
    wrong = np.flatnonzero(~((losses >= 0) & (losses <= 1)))
    if len(wrong):
        raise MetricError(
            f"metric {metric.name} returned {losses[wrong[0]]:g} for sample {wrong[0]}: a loss is "
            "a number from 0 (the same) to 1."
        )
    return losses


def check_metric(metric: Metric, reference: Outputs) -> None:
    """Raise if the metric cannot be used with these outputs, or finds them unlike themselves."""
    losses = losses_of(metric, reference, reference)
    wrong = np.flatnonzero(losses)
    if len(wrong):
        raise MetricError(
            f"metric {metric.name} gives a loss of {losses[wrong[0]]:g} for sample {wrong[0]} "
            "where a candidate's outputs are the float model's own: it has to be 0 there."
        )


def _where(metric: Metric, reference: Outputs, outputs: Outputs, count: int) -> str:
    """Return at which sample alone a metric raises, as far as one can tell."""
    for at in range(count):
        one = (
            {name: each[at : at + 1] for name, each in of.items()} for of in (reference, outputs)
        )
        try:
            metric.losses(*one)
        except Exception:
            return f" (sample {at})"
    return ""


def _contract(reference: Outputs, count: int) -> str:
    shapes = {name: ["?", *np.shape(each[0])] for name, each in reference.items()}
    named = ", ".join(f"{name!r} [{', '.join(map(str, dims))}]" for name, dims in shapes.items())
    return (
        f"It gets the outputs of the float model and of a candidate by name ({named}), one entry "
        f"per sample, and has to return one loss from 0 to 1 for each of the {count} samples."
    )


def _shown(losses: np.ndarray) -> str:
    return f"{losses:g}" if losses.ndim == 0 else f"an array of shape {list(losses.shape)}"
