"""Choices that begin alike, so that what they have in common runs once for all of them.

The first layers of most networks hold few of the weights and do much of the work: half of it with 5
% of the weights in EfficientNet-Lite0. Giving them one precision in all candidates costs next to
nothing, and saves almost half of the time that their evaluation takes.
"""

from collections.abc import Sequence

import numpy as np

from seqto.search.options import Menu

_RUNS = 2
"""In how many parts choices are made alike: small models and large ones differ too much."""


def begun_alike(menu: Menu, choices: Sequence[list[int]], price: float) -> list[list[int]]:
    """Return the choices such that neighbours have the same options for their first units.

    `price` is by which share they may become larger on average: bytes, and harm at what each choice
    pays for a byte. Choices that do no harm, such as the float model, stay as they are. Expects
    choices from the smallest to the largest.
    """
    places = [at for at, choice in enumerate(choices) if menu.harm(choice) > 0]
    found = list(choices)
    for run in np.array_split(places, _RUNS):
        some = [choices[at] for at in run]
        if price > 0 and len(some) > 1:
            common = _common(menu, some, price)
            for at, choice in zip(run, some, strict=True):
                found[at] = [common.get(unit, each) for unit, each in enumerate(choice)]
    return found


def _common(menu: Menu, choices: Sequence[list[int]], price: float) -> dict[int, int]:
    """Return the options of as many first units as the price allows."""
    prices = np.where(_used(menu, choices), _prices(menu, choices), np.inf)
    order = np.argsort(menu.positions, kind="stable")
    spent = np.cumsum(np.maximum(prices[order].min(axis=1), 0))
    return {int(unit): int(prices[unit].argmin()) for unit in order[spent <= price]}


def _used(menu: Menu, choices: Sequence[list[int]]) -> np.ndarray:
    """Tell which options of each unit some choice has."""
    used = np.zeros(menu.costs.shape, bool)
    for choice in choices:
        used[np.arange(len(choice)), choice] = True
    return used


def _prices(menu: Menu, choices: Sequence[list[int]]) -> np.ndarray:
    """Return what it takes to give all choices one option, as a share of their bytes.

    One row per unit and one column per option; the mean over the choices, which go from the
    smallest to the largest.
    """
    units = np.arange(len(menu.layers))
    total = np.zeros(menu.costs.shape)
    for choice, worth in zip(choices, _worths(menu, choices), strict=True):
        bytes_more = menu.sizes - menu.sizes[units, choice][:, None]
        harm_more = menu.costs - menu.costs[units, choice][:, None]
        total += (bytes_more + harm_more / worth) / menu.bytes(choice)
    return np.asarray(total / len(choices))


def _worths(menu: Menu, choices: Sequence[list[int]]) -> np.ndarray:
    """Return how much harm a byte undoes at each choice.

    Between neighbours the logarithm of harm falls about evenly with the bytes.
    """
    sizes = np.array([menu.bytes(each) for each in choices])
    harms = np.array([menu.harm(each) for each in choices])
    places = np.arange(len(choices))
    before, behind = np.maximum(places - 1, 0), np.minimum(places + 1, len(choices) - 1)
    falls = np.log(harms[before] / harms[behind]) / np.maximum(sizes[behind] - sizes[before], 1)
    # Where bytes undo nothing, a share of them is worth the same share of harm.
    return np.asarray(harms * np.maximum(falls, 1 / np.maximum(sizes, 1)))
