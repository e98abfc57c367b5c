"""Choices that begin alike, so that what they have in common runs once for all of them.

The first layers of most networks hold few of the weights and do much of the work: 45 % of it with
2 % of the weights in EfficientNet-Lite0. Giving them one precision in neighbouring candidates costs
next to nothing, and saves almost that much of the time that their evaluation takes.
"""

from collections.abc import Sequence

import numpy as np

from seqto.search.options import Menu

_RUNS = 2
"""In how many parts choices are made alike: small models and large ones differ too much."""


def begun_alike(menu: Menu, choices: Sequence[list[int]], price: float) -> list[list[int]]:
    """Return the choices such that neighbours have the same options for their first units.

    `price` is by which share they may become larger on average, in bytes, or in harm at what each
    choice pays for a byte. The smallest choice stays as it is, and those that do no harm, such as
    the float model. Expects choices from the smallest to the largest.
    """
    places = [at for at, choice in enumerate(choices) if menu.harm(choice) > 0]
    worths = dict(zip(places, _worths(menu, [choices[at] for at in places]), strict=True))
    found = list(choices)
    for run in np.array_split(places[1:], _RUNS):
        some = [choices[at] for at in run]
        if price > 0 and len(some) > 1:
            common = _common(menu, some, [worths[int(at)] for at in run], price)
            for at, choice in zip(run, some, strict=True):
                found[at] = [common.get(unit, each) for unit, each in enumerate(choice)]
    return found


def _common(
    menu: Menu, choices: Sequence[list[int]], worths: Sequence[float], price: float
) -> dict[int, int]:
    """Return the options of as many first units as the price allows."""
    prices = np.where(_used(menu, choices), _prices(menu, choices, worths), np.inf)
    order = np.argsort(menu.positions, kind="stable")
    spent = np.cumsum(prices[order].min(axis=1))
    return {int(unit): int(prices[unit].argmin()) for unit in order[spent <= price]}


def _used(menu: Menu, choices: Sequence[list[int]]) -> np.ndarray:
    """Tell which options of each unit some choice has."""
    used = np.zeros(menu.costs.shape, bool)
    for choice in choices:
        used[np.arange(len(choice)), choice] = True
    return used


def _prices(menu: Menu, choices: Sequence[list[int]], worths: Sequence[float]) -> np.ndarray:
    """Return what it takes to give all choices one option, as a share of their bytes.

    One row per unit and one column per option; the mean over the choices. Harm that is undone
    pays for nothing: bytes count, whatever they are good for.
    """
    units = np.arange(len(menu.layers))
    total = np.zeros(menu.costs.shape)
    for choice, worth in zip(choices, worths, strict=True):
        bytes_more = menu.sizes - menu.sizes[units, choice][:, None]
        harm_more = menu.costs - menu.costs[units, choice][:, None]
        price = np.maximum(bytes_more + harm_more / worth, np.maximum(bytes_more, 0))
        # Estimated bytes of small layers may be none.
        total += price / max(menu.bytes(choice), 1)
    return np.asarray(total / max(len(choices), 1))


def _worths(menu: Menu, choices: Sequence[list[int]]) -> list[float]:
    """Return how much harm a byte undoes at each choice.

    Between neighbours the logarithm of harm falls about evenly with the bytes.
    """
    points = [(menu.bytes(each), menu.harm(each)) for each in choices]
    path = sorted(set(points))
    worths = {}
    for at, (size, harm) in enumerate(path):
        before, behind = path[max(at - 1, 0)], path[min(at + 1, len(path) - 1)]
        fall = np.log(before[1] / behind[1]) / max(behind[0] - before[0], 1)
        # Where bytes undo nothing, a share of them is worth the same share of harm.
        worths[size, harm] = harm * max(float(fall), 1 / max(size, 1))
    return [worths[each] for each in points]
