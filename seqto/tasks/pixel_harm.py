"""How far the classes of pixels are from the float model's."""

import numpy as np

from seqto.metrics.harm import FLOOR, WORST
from seqto.tasks.pixels import PixelLayout, Values
from seqto.types import Outputs

_RAREST = 1e-3
"""Classes with a smaller share of all pixels count as if they had this share."""


class PixelDivergence:
    """The KL divergence of pixels, in nats, as a mean over classes: the mean IoU is one, too.

    A plain mean over pixels would not notice that a small object is lost. So a pixel counts by how
    rare its class is with the float model, or the class that the candidate takes it for.
    """

    name = "kl"

    def __init__(self, layout: PixelLayout, reference: Outputs) -> None:
        self._layout, self._reference = layout, reference
        maps = (layout.class_map(entry) for entry in layout.entries(reference))
        counts = sum(
            (
                np.bincount(each.ravel(), minlength=layout.classes)
                for each in maps
                if each is not None
            ),
            start=np.zeros(layout.classes),
        )
        share = counts / max(counts.sum(), 1)
        self._weights = 1 / (max((counts > 0).sum(), 1) * np.maximum(share, _RAREST))

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the harm to each sample."""
        entries = self._layout.entries
        pairs = zip(entries(self._reference), entries(outputs), strict=False)
        return np.array([self._harm(*pair) for pair in pairs])

    def _harm(self, reference: np.ndarray, found: np.ndarray) -> float:
        if not self._layout.is_usable(reference):
            return 0.0
        if found.shape != reference.shape or not self._layout.is_usable(found):
            return WORST
        chunks = zip(self._layout.chunks(reference), self._layout.chunks(found), strict=True)
        sums = np.array([self._sums(*pair) for pair in chunks]).sum(axis=0)
        mean = float(sums[0] / sums[1])
        # The square root of a divergence is about five times the share of changed classes.
        return (5 * mean) ** 2 if self._layout.values is Values.IDS else mean

    def _sums(self, reference: np.ndarray, found: np.ndarray) -> tuple[float, int]:
        """Return the weighted errors of some pixels, and how many there are."""
        weights = np.maximum(self._weight(reference), self._weight(found))
        return float((weights * self._errors(reference, found)).sum()), reference.shape[1]

    def _weight(self, values: np.ndarray) -> np.ndarray:
        """Return the weight of each pixel's class; one that the float model never finds is rare."""
        if self._layout.axis is not None:
            classes = values.argmax(axis=0)
        elif self._layout.values is Values.IDS:
            classes = np.minimum(values[0], len(self._weights) - 1)
        else:
            classes = (values[0] >= self._layout.threshold).astype(int)
        return np.asarray(self._weights[classes])

    def _errors(self, reference: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return the divergence of each pixel; of ids, whether they differ."""
        kind = self._layout.values
        if kind is Values.IDS:
            return np.asarray(reference[0] != found[0], np.float64)
        # Float64, to be precise for small harms.
        wanted, got = (np.asarray(each, np.float64) for each in (reference, found))
        if kind is Values.PROBABILITIES:
            return _alone(wanted, got)
        if self._layout.axis is None:
            # The threshold is where a pixel is as likely inside as outside.
            return _alone(*(_sigmoid(each - self._layout.threshold) for each in (wanted, got)))
        return _together(wanted, got, kind is Values.LOGITS)


def _alone(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Return the divergences of each class's probability, added up."""
    p, q = (np.clip(each, FLOOR, 1 - FLOOR) for each in (wanted, got))
    terms = p * (np.log(p) - np.log(q)) + (1 - p) * (np.log1p(-p) - np.log1p(-q))
    return np.asarray(np.maximum(terms.sum(axis=0), 0.0))


def _together(wanted: np.ndarray, got: np.ndarray, are_logits: bool) -> np.ndarray:
    """Return the divergence of the classes' distribution."""
    if are_logits:
        p, q = (np.maximum(_log_softmax(x), np.log(FLOOR)) for x in (wanted, got))
    else:
        p, q = (np.log(np.maximum(x, FLOOR)) for x in (wanted, got))
    return np.asarray(np.maximum((np.exp(p) * (p - q)).sum(axis=0), 0.0))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(values / 2)))


def _log_softmax(values: np.ndarray) -> np.ndarray:
    # A pixel with no possible class is taken as undecided.
    shifted = values - np.nan_to_num(values.max(axis=0), neginf=0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(shifted).sum(axis=0))
    return np.asarray(shifted - np.nan_to_num(total, neginf=0.0))
