"""Latencies that are compared, measured in turns: what disturbs one of them disturbs all."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from seqto.protocols import Device, Program, SharesPrefixes
from seqto.types import Arrays, Latency, Model

ROUNDS = 3
"""How often each model has its turn; the quietest of its turns counts."""

_ROUNDS_OF_LOADS = 2
"""The same where each turn loads the model again."""

_AT_ONCE = 2**30
"""Models of more bytes than this are not held at the same time."""


def time_in_turns(
    models: Sequence[Model], standard: Model, inputs: Arrays, device: Device
) -> tuple[list[Latency], Latency]:
    """Return the latency of each model and that of the standard, measured in turns.

    If not all fit into memory together, each group has its turns with the standard, and its
    latencies are scaled to those of the first group.
    """
    found: list[Latency] = []
    first: Latency | None = None
    for group in _groups(models, standard):
        own, *others = _timed([standard, *group], inputs, device)
        first = first or own
        found += [_scaled(each, first.median_ms / own.median_ms) for each in others]
    assert first is not None
    return found, first


def _groups(models: Sequence[Model], standard: Model) -> Iterator[Sequence[Model]]:
    """Yield the models in groups that fit into memory together; one at least, empty if need be."""
    largest = max(each.size for each in (standard, *models))
    # A session holds about as much again as the model's file.
    fitting = max(1, _AT_ONCE // (2 * max(largest, 1)) - 1)
    for start in range(0, max(len(models), 1), fitting):
        yield models[start : start + fitting]


def _timed(models: Sequence[Model], inputs: Arrays, device: Device) -> list[Latency]:
    turns = _held if _holds_several(device) else _one_by_one
    rounds = turns(models, inputs, device)
    return [_quietest(each) for each in zip(*rounds, strict=True)]


def _quietest(turns: Sequence[Latency]) -> Latency:
    """Return the least of each figure: what else runs on the machine only adds to them."""
    return Latency(
        median_ms=min(each.median_ms for each in turns),
        p10_ms=min(each.p10_ms for each in turns),
        p90_ms=min(each.p90_ms for each in turns),
    )


def _holds_several(device: Device) -> bool:
    """Return whether many models may be loaded at once: not in processes, nor remotely."""
    return isinstance(device, SharesPrefixes) and device.shares_prefixes


def _held(models: Sequence[Model], inputs: Arrays, device: Device) -> list[list[Latency]]:
    with ExitStack() as stack:
        programs: list[Program] = []
        for model in models:
            programs.append(device.load(model))
            stack.callback(programs[-1].close)
        return [[each.time(inputs) for each in programs] for _ in range(ROUNDS)]


def _one_by_one(models: Sequence[Model], inputs: Arrays, device: Device) -> list[list[Latency]]:
    def turn(model: Model) -> Latency:
        program = device.load(model)
        try:
            return program.time(inputs)
        finally:
            program.close()

    return [[turn(each) for each in models] for _ in range(_ROUNDS_OF_LOADS)]


def _scaled(latency: Latency, factor: float) -> Latency:
    return Latency(latency.median_ms * factor, latency.p10_ms * factor, latency.p90_ms * factor)
