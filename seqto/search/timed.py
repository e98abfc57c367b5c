"""The integer program that knows latency: each tensor between layers has a variable of its own.

A tensor is converted where one side of it computes with integers and the other with floats. So the
time of a choice is not only the sum of its layers' times, and choices with few, contiguous regions
of integers may be faster than those with more layers in integers.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from seqto.search.options import Menu
from seqto.types import FLOAT32, Goal, LatencyModel, TimedLayer

_HOPELESS, _HARDLY_ANY = 0.6, 1e-4
"""The divergences between which candidates may be worth their evaluation."""

_GAP = 5e-3
"""By which share a solution may be above the best one: predictions are not better than that."""

_NODES = 2000
"""After so many branches the best solution so far is taken; a time would not be the same twice."""

_MINOR = 0.01
"""The weight of what is not traded off: of equally good choices the smaller or faster is taken."""

_HARM = 1e-3
"""The weight of harm within its limit: what is cheaper by less than that is not worth all of it."""

_ROUNDING = 1e-9


_log = logging.getLogger(__name__)


@dataclass
class _Rows:
    """Linear constraints, collected term by term."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, terms: Iterable[tuple[int, float]], low: float, high: float) -> None:
        """Add the constraint that the sum of these terms is from `low` to `high`."""
        for column, value in terms:
            self.rows.append(len(self.low))
            self.columns.append(column)
            self.values.append(value)
        self.low.append(low)
        self.high.append(high)

    def constraint(self, width: int) -> LinearConstraint:
        """Return them as the solver takes them."""
        shape = (len(self.low), width)
        # Of this width, because scipy 1.11 hands them to a solver that takes no other.
        places = np.array(self.rows, np.int32), np.array(self.columns, np.int32)
        table = csr_array((self.values, places), shape=shape)
        return LinearConstraint(table, np.array(self.low), np.array(self.high))


class TimedMenu:
    """The options of a menu with how long they take, and the programs to choose among them.

    The variables are, in this order: one per unit and precision (1 if it is chosen), then for each
    operation whether it lies behind a layer on integers, before one, and runs on integers itself,
    then for each passage whether it is quantized and whether it is dequantized.
    """

    def __init__(self, menu: Menu, latency: LatencyModel) -> None:
        self.menu, self.latency = menu, latency
        places = {name: row for row, unit in enumerate(menu.layers) for name in unit}
        self._layers = [each for each in latency.layers if each.name in places]
        self._places = places
        units, options = menu.costs.shape
        self.ms = np.zeros((units, options))
        for layer in self._layers:
            self.ms[places[layer.name]] += [layer.ms[name] for name in menu.precisions]
        count = units * options
        operations = [each.name for each in latency.operations]
        self._behind = {name: count + at for at, name in enumerate(operations)}
        self._ahead = {name: at + len(operations) for name, at in self._behind.items()}
        self._runs = {name: at + 2 * len(operations) for name, at in self._behind.items()}
        count += 3 * len(operations)
        self._quantized = range(count, count + len(latency.passages))
        self._dequantized = range(self._quantized.stop, count + 2 * len(latency.passages))
        self.width = self._dequantized.stop
        self._structure = self._rules()
        self._costs = self._prices()
        self.float_ms = self.predict(menu.unchanged())
        self.float_bytes = max(menu.bytes(menu.unchanged()), 1.0)

    def predict(self, choice: Sequence[int]) -> float:
        """Return the predicted milliseconds of this choice; layers beside the menu are in float."""
        chosen = dict(self.menu.candidate(choice).precisions)
        whole = {each.name: chosen.get(each.name, FLOAT32) for each in self.latency.layers}
        return self.latency.spent(whole).total_ms

    def fastest(self) -> list[int]:
        """Return the choice that takes the least time, whatever its harm."""
        return self.best(size=_MINOR / 10, latency=1.0) or self.menu.unchanged()

    def best(
        self,
        size: float,
        latency: float,
        max_harm: float | None = None,
        max_ms: float | None = None,
    ) -> list[int] | None:
        """Return the cheapest choice within the limits; None if there is none.

        Its cost is the share of the float model's bytes times `size`, plus that of its time times
        `latency`.
        """
        units, options = self.menu.costs.shape
        bound = np.ones(self.width)
        rows = _Rows(*(list(each) for each in vars(self._structure).values()))
        # Relative to the limit, because the solver ignores differences below 1e-6.
        most = max_harm or float(self.menu.costs.max()) or 1.0
        harms = (self.menu.costs / most).reshape(-1)
        if max_harm is not None:
            bound[: units * options] = harms <= 1 + _ROUNDING
            rows.add(enumerate(np.where(harms <= 1, harms, 0).tolist()), 0, 1 + _ROUNDING)
        if max_ms is not None:
            shares = (self._costs / self.float_ms).tolist()
            rows.add(enumerate(shares), -np.inf, (max_ms - self._base_ms()) / self.float_ms)
        prices = latency * self._costs / self.float_ms
        prices[: units * options] += _HARM * np.minimum(harms, 1)
        prices[: units * options] += size * self.menu.sizes.reshape(-1) / self.float_bytes
        whole = np.zeros(self.width)
        whole[: units * options] = 1
        result = milp(
            prices,
            integrality=whole,
            bounds=Bounds(0, bound),
            constraints=rows.constraint(self.width),
            options={"mip_rel_gap": _GAP, "node_limit": _NODES},
        )
        if result.x is None:
            return None
        chosen = result.x[: units * options].reshape(units, options)
        return [int(each) for each in chosen.argmax(axis=1)]

    def _base_ms(self) -> float:
        """Return what every choice takes."""
        beside = sum(e.ms[FLOAT32] for e in self.latency.layers if e.name not in self._places)
        operations = sum(each.float_ms for each in self.latency.operations)
        return self.latency.fixed_ms + beside + operations

    def _prices(self) -> np.ndarray:
        """Return the milliseconds that each variable adds."""
        prices, rates = np.zeros(self.width), self.latency.rates
        prices[: self.ms.size] = self.ms.reshape(-1)
        for operation in self.latency.operations:
            if operation.integer_ms is not None:
                prices[self._runs[operation.name]] = operation.integer_ms - operation.float_ms
        for at, passage in enumerate(self.latency.passages):
            elements = passage.elements
            prices[self._quantized[at]] = rates.quantize * elements + rates.each
            prices[self._dequantized[at]] = rates.dequantize * elements + rates.each
        return prices

    def _rules(self) -> _Rows:
        """Return what holds for every choice."""
        rows = _Rows()
        units, options = self.menu.costs.shape
        for unit in range(units):
            rows.add([(unit * options + at, 1.0) for at in range(options)], 1, 1)
        on_integers = {each.name: self._on_integers(each) for each in self._layers}
        for operation in self.latency.operations:
            name = operation.name
            for own, near in ((self._behind, operation.before), (self._ahead, operation.after)):
                terms = [on_integers.get(each) or _only(own, each) for each in near]
                _is_any_of(rows, own[name], [each for each in terms if each])
            sides = [[(self._behind[name], 1.0)], [(self._ahead[name], 1.0)]]
            runs = operation.integer_ms is not None
            _is_any_of(rows, self._runs[name], sides if runs else [])
        state = {**on_integers, **{name: [(at, 1.0)] for name, at in self._runs.items()}}
        for at, passage in enumerate(self.latency.passages):
            made = state.get(passage.maker, [])
            for reader in passage.readers:
                read = state.get(reader, [])
                # 1 where only one side is on integers; costs keep it at 0 elsewhere.
                _is_at_least(rows, self._quantized[at], read, made)
                _is_at_least(rows, self._dequantized[at], made, read)
        return rows

    def _on_integers(self, layer: TimedLayer) -> list[tuple[int, float]]:
        """Return the variables of which one is 1 if the layer passes on integers."""
        first, names = self._places[layer.name] * len(self.menu.precisions), self.menu.precisions
        return [(first + at, 1.0) for at, name in enumerate(names) if name in layer.integers]


Terms = Sequence[tuple[int, float]]
"""Variables with their factors."""


def _only(columns: dict[str, int], name: str) -> list[tuple[int, float]]:
    return [(columns[name], 1.0)] if name in columns else []


def _is_any_of(rows: _Rows, column: int, others: Sequence[Terms]) -> None:
    """Make a variable 1 if one of these sums is 1, and 0 if none is."""
    for terms in others:
        rows.add([(column, 1.0), *((at, -value) for at, value in terms)], 0, np.inf)
    every = [(at, -value) for terms in others for at, value in terms]
    rows.add([(column, 1.0), *every], -np.inf, 0)


def _is_at_least(rows: _Rows, column: int, one: Terms, other: Terms) -> None:
    """Make a variable at least the difference of two sums."""
    if one:
        minus = [(at, -value) for at, value in one]
        rows.add([(column, 1.0), *minus, *other], 0, np.inf)


def timed_solutions(menu: Menu, latency: LatencyModel, goal: Goal, budgets: int) -> list[list[int]]:
    """Return the best choice for each of `budgets` harms, from the most harmful down.

    Within a limit on latency there may be fewer; if nothing meets it, it is the fastest choice.
    """
    timed = TimedMenu(menu, latency)
    fastest = timed.fastest()
    limit = None
    if goal.max_latency_ms is not None:
        # Predictions are off, also by twice what they are on average.
        limit = goal.max_latency_ms / (1 + 2 * latency.error)
    weights = _weights(goal)
    found = [fastest]
    for size, share in weights:
        cheapest = timed.best(size, share, max_ms=limit)
        if cheapest is None:
            _log.warning(
                "Nothing is predicted to take at most %g ms: the fastest takes about %.3g ms.",
                *(goal.max_latency_ms, timed.predict(fastest)),
            )
            break
        found.append(cheapest)
        for harm in _harms(menu, cheapest, -(-budgets // len(weights))):
            choice = timed.best(size, share, max_harm=harm, max_ms=limit)
            if choice is None:
                # Nor is there one of less harm.
                break
            found.append(choice)
    return [*found, menu.unchanged()]


def _weights(goal: Goal) -> list[tuple[float, float]]:
    """Return the weights of size and latency with which solutions are looked for, in turn."""
    if goal.size and goal.latency:
        return [(1.0, 1.0), (1.0, _MINOR), (_MINOR, 1.0)]
    return [(_MINOR, 1.0)] if goal.latency else [(1.0, _MINOR)]


def _harms(menu: Menu, cheapest: Sequence[int], count: int) -> list[float]:
    """Return harms in even steps of their logarithm, from the most that is worth trying down."""
    most = menu.harm(cheapest)
    if most <= 0:
        return [1.0]
    high = min(most, _HOPELESS)
    low = min(_HARDLY_ANY, high / 10)
    least = menu.costs.copy()
    least[least <= 0] = np.inf
    if np.mean(least.min(axis=1) <= high) < 0.25:
        # Costs that are not divergences have another scale.
        high, low = most, most / 1000
    return [float(each) for each in np.geomspace(high, low, count)]
