"""Latencies that are compared, measured in turns: what disturbs one of them disturbs all.

Other work on a machine changes how fast it is from second to second. So models are called in turns,
and what counts is how long a call takes beside the calls of the standard, the float model, right
before and behind it. Latencies are the median of these ratios, with the standard's latency as unit.
"""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from seqto.errors import DeviceError
from seqto.protocols import Device, Program, StandIn, TakesTurns
from seqto.types import Arrays, Latency, Model

_LEAST_TURNS = 6
"""Of fewer turns a spread tells nothing."""

_SURE = 0.01
"""Turns end when the standard error of all ratios is below this."""

_PATIENCE = 2
"""Where several models are compared, there are at most so many times the usual turns."""

_TURN_MS = 1.0
"""Fast models are called several times a turn: a call right after another model's is slower."""

_MOST_CALLS = 100

_SLOW_START = 5
"""By how many times the first call of a fast model may be slower than the next."""

_NEIGHBOURS = 2
"""After so many models the standard has its turn again."""

_ALONE, _ALONE_SECONDS = 3, 1.0
"""How often a model by itself is timed, and for how long unless it is slow."""

_ROUNDS_OF_LOADS = 2
"""How often each model has its turn where each turn loads it again."""

_AT_ONCE = 2**30
"""Models of more bytes than this are not held at the same time."""

_UNIT = Latency(1.0, 1.0, 1.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compared:
    """A model's latency, and that of the standard in the same turns, if there were any."""

    latency: Latency
    standard_ms: float | None = None


def time_in_turns(
    models: Sequence[Model], standard: Model, inputs: Arrays, device: Device
) -> tuple[list[Latency], Latency]:
    """Return the latency of each model and that of the standard, measured in turns.

    If not all fit into memory together, each group has its turns with the standard.
    """
    ratios: list[Latency] = []
    own: list[Latency] = []
    for group in _groups(models, standard):
        found, unit = _compared(group, standard, inputs, device)
        ratios += found
        own.append(unit)
    quiet = min(own, key=lambda each: each.median_ms)
    return [scaled(each, quiet.median_ms) for each in ratios], quiet


def time_beside(
    program: Program, model: Model, standard: Model, inputs: Arrays, device: Device
) -> Compared:
    """Return the latency of a loaded model, in turns with the standard if both can be held."""
    if model.digest == standard.digest:
        own = program.time(inputs)
        return Compared(own, own.median_ms)
    if not isinstance(program, TakesTurns) or _at_once([model, standard]) < 2:
        return Compared(program.time(inputs))
    try:
        beside = device.load(standard)
    except DeviceError as error:
        _log.info("The float model cannot be loaded beside a candidate: %s", error)
        return Compared(program.time(inputs))
    try:
        assert isinstance(beside, TakesTurns)
        turns = _Turns(beside, [program], inputs)
        turns.take(program.turns)
        return Compared(scaled(turns.ratios()[0], turns.own().median_ms), turns.own().median_ms)
    finally:
        beside.close()


def time_after(alone: Latency, standard: Model, inputs: Arrays, device: Device) -> Compared:
    """Return a latency beside that of the standard right after it, as both cannot be held.

    Its spread is that of both. Where loading takes long, such as compiling for a phone, the
    candidate is timed alone: what a study trades off is timed in turns at its end.
    """
    if isinstance(device, StandIn):
        return Compared(alone)
    try:
        own = _turn(standard, inputs, device)
    except DeviceError as error:
        _log.info("A candidate is timed without the float model: %s", error)
        return Compared(alone)
    return Compared(scaled(_ratio(alone, own), own.median_ms), own.median_ms)


def quietest(program: Program, inputs: Arrays) -> Latency:
    """Return the latency of a program by itself: of a few measurements the quietest."""
    start, found = time.monotonic(), [program.time(inputs)]
    while len(found) < _ALONE and time.monotonic() - start < _ALONE_SECONDS:
        found.append(program.time(inputs))
    return min(found, key=lambda each: each.median_ms)


def scaled(latency: Latency, factor: float) -> Latency:
    """Return this many times a latency."""
    return Latency(latency.median_ms * factor, latency.p10_ms * factor, latency.p90_ms * factor)


@dataclass
class _Turns:
    """Programs called in turns, and how long each took beside the standard."""

    standard: TakesTurns
    programs: Sequence[TakesTurns]
    inputs: Arrays
    _calls: dict[int, int] = field(default_factory=dict)
    _own: list[float] = field(default_factory=list)
    _beside: list[list[float]] = field(default_factory=list)

    def take(self, most: int) -> None:
        """Take turns until all ratios are sure, at most this often."""
        for each in (self.standard, *self.programs):
            self._calls[id(each)] = self._calls_of(each)
        self._own.append(self._turn(self.standard))
        for done in range(1, most + 1):
            self._beside.append(list(self._round()))
            if done >= _LEAST_TURNS and self._sure():
                return

    def ratios(self) -> list[Latency]:
        """Return the latency of each program, with the standard's as unit."""
        return [_spread(each) for each in zip(*self._beside, strict=True)]

    def own(self) -> Latency:
        """Return the standard's latency in quiet turns, with the spread of it beside itself."""
        own = np.array(self._own)
        quiet = float(np.percentile(own, 25))
        beside = own[1:-1] / np.sqrt(own[:-2] * own[2:]) if len(own) > 2 else np.ones(1)
        low, high = np.percentile(beside, [10, 90])
        return Latency(quiet, min(quiet * float(low), quiet), max(quiet * float(high), quiet))

    def _calls_of(self, program: TakesTurns) -> int:
        """Return how many calls of a program make a turn; warm it up."""
        (ms,) = program.times(self.inputs, 1)
        if ms < _SLOW_START * _TURN_MS:
            # The first call of all is slow.
            (ms,) = program.times(self.inputs, 1)
        return min(math.ceil(_TURN_MS / max(ms, 1e-6)), _MOST_CALLS)

    def _round(self) -> Iterator[float]:
        """Give each program its turn, and the standard after every few."""
        for start in range(0, len(self.programs), _NEIGHBOURS):
            group = self.programs[start : start + _NEIGHBOURS]
            taken = [self._turn(each) for each in group]
            self._own.append(self._turn(self.standard))
            before, behind = self._own[-2:]
            for place, ms in enumerate(taken, 1):
                share = place / (len(group) + 1)
                yield ms / (before ** (1 - share) * behind**share)

    def _turn(self, program: TakesTurns) -> float:
        return float(np.median(program.times(self.inputs, self._calls[id(program)])))

    def _sure(self) -> bool:
        beside = np.array(self._beside)
        low, middle, high = np.percentile(beside, [10, 50, 90], axis=0)
        # The standard error of a median, if its values were normal.
        errors = 1.25 * (high - low) / 2.56 / math.sqrt(len(beside))
        return bool((errors <= _SURE * middle).all())


def _spread(values: Sequence[float]) -> Latency:
    low, median, high = np.percentile(values, [10, 50, 90])
    return Latency(median_ms=float(median), p10_ms=float(low), p90_ms=float(high))


def _groups(models: Sequence[Model], standard: Model) -> Iterator[Sequence[Model]]:
    """Yield the models in groups that fit into memory together; one at least, empty if need be."""
    fitting = max(1, _at_once([standard, *models]) - 1)
    for start in range(0, max(len(models), 1), fitting):
        yield models[start : start + fitting]


def _at_once(models: Sequence[Model]) -> int:
    """Return how many models like these may be held at the same time."""
    # A session holds about as much again as the model's file.
    return _AT_ONCE // (2 * max(1, *(each.size for each in models)))


def _compared(
    models: Sequence[Model], standard: Model, inputs: Arrays, device: Device
) -> tuple[list[Latency], Latency]:
    """Return each model's latency with the standard's as unit, and the standard's own."""
    with ExitStack() as stack:
        first = device.load(standard)
        stack.callback(first.close)
        if isinstance(first, TakesTurns):
            programs: list[TakesTurns] = []
            for model in models:
                program = device.load(model)
                stack.callback(program.close)
                assert isinstance(program, TakesTurns)
                programs.append(program)
            turns = _Turns(first, programs, inputs)
            turns.take(_PATIENCE * first.turns)
            return turns.ratios(), turns.own()
    return _one_by_one(models, standard, inputs, device)


def _one_by_one(
    models: Sequence[Model], standard: Model, inputs: Arrays, device: Device
) -> tuple[list[Latency], Latency]:
    """Compare models of which only one can be held."""
    rounds = [
        [_turn(each, inputs, device) for each in (standard, *models)]
        for _ in range(_ROUNDS_OF_LOADS)
    ]
    own, *others = (_least(each) for each in zip(*rounds, strict=True))
    return [scaled(each, 1 / own.median_ms) for each in others], own


def _turn(model: Model, inputs: Arrays, device: Device) -> Latency:
    program = device.load(model)
    try:
        return program.time(inputs)
    finally:
        program.close()


def _least(turns: Sequence[Latency]) -> Latency:
    """Return the least of each figure: what else runs on the machine only adds to them."""
    return Latency(
        median_ms=min(each.median_ms for each in turns),
        p10_ms=min(each.p10_ms for each in turns),
        p90_ms=min(each.p90_ms for each in turns),
    )


def _ratio(one: Latency, other: Latency) -> Latency:
    """Return a latency with the other's as unit, as far apart as both allow."""
    return Latency(
        one.median_ms / other.median_ms,
        one.p10_ms / other.p90_ms,
        one.p90_ms / other.p10_ms,
    )
