"""Which layers make a candidate fail on a device.

First the operations or layers that the error names are tried. If that does not explain it, the
layers are bisected in ranked order until those are left that fail by themselves. Every conclusion
is confirmed by a run. If the device cannot be reached, the search ends without an answer.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from seqto.types import FLOAT32, Candidate, Layer

OPERATION, BISECTION = "operation", "bisection"

Try = Callable[[Candidate], str]
"""Runs a candidate on the device and returns why it fails, or "" if it works."""

Introduced = Callable[[Layer], Collection[str]]
"""Returns the operations that quantizing this layer adds to the model."""

LIMIT = 100
"""After this many tries, layers that are not yet told apart are blamed together."""

_BLAMABLE = ("Error", "ImportError", "CompileError", "RunError", "TimeoutError")


@dataclass(frozen=True)
class Probe:
    """Layers that were quantized, and why that failed; an empty `failure` means it worked."""

    quantized: tuple[str, ...]
    failure: str


@dataclass(frozen=True)
class Blame:
    """The layers to blame, how they were found, and everything that was tried."""

    layers: tuple[str, ...]
    by: str
    attempts: tuple[Probe, ...]


def is_blamable(failure: str) -> bool:
    """Tell whether a failure says something about the candidate.

    A lost connection, a wrong config or an unexpected Python error says nothing about it.
    """
    return failure.startswith(tuple(f"Device{kind}:" for kind in _BLAMABLE))


def find_culprits(
    candidate: Candidate,
    failure: str,
    ranking: Sequence[Layer],
    attempt: Try,
    introduced: Introduced,
) -> Blame | None:
    """Return which layers make this candidate fail, or None if that cannot be known.

    It cannot be known if the candidate works this time, or if the float model fails too.
    """
    search = _Search(dict(candidate.precisions), attempt)
    quantized = [each for each in ranking if search.precisions.get(each.name) != FLOAT32]
    names = [each.name for each in quantized]
    if search.fails([]) or not search.fails(names):
        return None
    for suspects in _named(failure, quantized, introduced):
        if not search.fails([name for name in names if name not in suspects]):
            return Blame(tuple(suspects), OPERATION, tuple(search.attempts))
    return Blame(tuple(search.culprits(names)), BISECTION, tuple(search.attempts))


def _named(failure: str, quantized: Sequence[Layer], introduced: Introduced) -> list[list[str]]:
    """Return the groups of layers that the error may mean, the most specific first."""
    by_operation: dict[str, list[str]] = {}
    for layer in quantized:
        for operation in (*introduced(layer), layer.op_type):
            by_operation.setdefault(operation, []).append(layer.name)
    groups = [[each.name for each in quantized if _mentions(failure, each.name)]]
    # An operation of few layers tells more than one of all layers.
    ordered = sorted(by_operation.items(), key=lambda item: len(item[1]))
    groups += [layers for operation, layers in ordered if _mentions(failure, operation)]
    return [group for group in groups if group]


def _mentions(text: str, name: str) -> bool:
    """Tell whether a text contains this name as a whole word."""
    return re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/])", text) is not None


@dataclass
class _Search:
    """Tries of one candidate with some of its layers left in float32."""

    precisions: Mapping[str, str]
    attempt: Try
    attempts: list[Probe] = field(default_factory=list)

    def fails(self, quantized: Sequence[str]) -> bool:
        """Tell whether the candidate fails with only these of its layers quantized."""
        known = {each.quantized: each for each in self.attempts}
        names = tuple(quantized)
        if names not in known:
            precisions = {
                name: precision if name in names else FLOAT32
                for name, precision in self.precisions.items()
            }
            known[names] = Probe(names, self.attempt(Candidate.of(precisions)))
            self.attempts.append(known[names])
        return bool(known[names].failure)

    def culprits(self, names: Sequence[str]) -> list[str]:
        """Return those of these failing layers without which the rest works."""
        found: list[str] = []
        rest = list(names)
        while rest and self.fails(rest):
            found += self._narrowed(rest)
            rest = [name for name in rest if name not in found]
        return found

    def _narrowed(self, names: Sequence[str]) -> list[str]:
        """Return which of these layers, which fail together, fail by themselves."""
        if len(names) == 1 or len(self.attempts) >= LIMIT:
            return list(names)
        middle = len(names) // 2
        halves = [half for half in (names[:middle], names[middle:]) if self.fails(half)]
        if not halves:
            return [self._last_straw(names, middle)]
        return [name for half in halves for name in self._narrowed(half)]

    def _last_straw(self, names: Sequence[str], works: int) -> str:
        """Return the first layer whose addition makes a prefix fail; each half works."""
        fails = len(names)
        while fails - works > 1:
            middle = (works + fails) // 2
            if self.fails(names[:middle]):
                fails = middle
            else:
                works = middle
        return names[fails - 1]
