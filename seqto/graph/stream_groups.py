"""Groups arrays of integers that one code serves well."""

from collections.abc import Sequence

import numpy as np

from seqto.graph.codebooks import narrowest

MOST_GROUPS = 6
_CODE_BITS = 16_000
"""About how many bits a code of its own takes in a model's file: its words, nodes and names."""

_FAR = 64
"""Integers beyond this count as this one."""


def grouped(arrays: Sequence[np.ndarray]) -> list[list[int]]:
    """Return which arrays to code together, those of a group in their order.

    The two groups that lose least by one code become one, until there are few groups and another
    code would save more than it takes. Arrays that need wider integers are not put with others.
    """
    types = [narrowest(each) for each in arrays]
    found = []
    for wanted in dict.fromkeys(types):
        members = [at for at, each in enumerate(types) if each is wanted]
        counts = np.array([_histogram(arrays[at]) for at in members])
        found += [[members[at] for at in group] for group in _merged(counts)]
    return sorted(found)


def _histogram(integers: np.ndarray) -> np.ndarray:
    near = np.clip(integers.reshape(-1), -_FAR, _FAR).astype(np.int16) + _FAR
    return np.bincount(near, minlength=2 * _FAR + 1)


def _merged(counts: np.ndarray) -> list[list[int]]:
    groups = [[at] for at in range(len(counts))]
    bits = _bits(counts)
    losses = np.full((len(groups), len(groups)), np.inf)
    for at in range(len(groups)):
        losses[at, :at] = _losses(counts, bits, at)[:at]
    while len(groups) > 1:
        one, other = np.unravel_index(np.argmin(losses), losses.shape)
        if len(groups) <= MOST_GROUPS and losses[one, other] > _CODE_BITS:
            break
        groups[other] = sorted(groups[other] + groups.pop(one))
        counts[other] += counts[one]
        counts = np.delete(counts, one, axis=0)
        losses = np.delete(np.delete(losses, one, axis=0), one, axis=1)
        bits = _bits(counts)
        changed = _losses(counts, bits, int(other))
        losses[other, :other] = changed[:other]
        losses[other + 1 :, other] = changed[other + 1 :]
    return groups


def _losses(counts: np.ndarray, bits: np.ndarray, at: int) -> np.ndarray:
    """Return how many bits more each group takes in one code with this one."""
    return np.asarray(_bits(counts + counts[at]) - bits - bits[at])


def _bits(counts: np.ndarray) -> np.ndarray:
    """Return the bits of all values of each row of frequencies, by their entropy."""
    totals = counts.sum(axis=1)
    return np.asarray(_times_log(totals) - _times_log(counts).sum(axis=1))


def _times_log(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers * np.log2(np.maximum(numbers, 1)))
