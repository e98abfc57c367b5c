"""Which precision each layer of a candidate has."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seqto.types.keys import content_key
from seqto.types.precisions import FLOAT32, INT8, SHORT, family


@dataclass(frozen=True)
class Candidate:
    """One choice of precision for every layer.

    `scheme` says how the layers are quantized, if the quantizer has several ways.
    """

    precisions: tuple[tuple[str, str], ...]
    scheme: str = ""

    @classmethod
    def excluding(cls, layers: Iterable[str], excluded: Iterable[str]) -> "Candidate":
        """Return the candidate that leaves these layers in float32 and quantizes the others."""
        left = frozenset(excluded)
        return cls(tuple((name, FLOAT32 if name in left else INT8) for name in sorted(layers)))

    @classmethod
    def of(cls, precisions: Mapping[str, str], scheme: str = "") -> "Candidate":
        """Return the candidate with these precisions by layer."""
        return cls(tuple(sorted(precisions.items())), scheme)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The layers left in float32, by name."""
        return tuple(name for name, precision in self.precisions if precision == FLOAT32)

    @property
    def is_float(self) -> bool:
        """Whether all layers are in float32."""
        return len(self.excluded) == len(self.precisions)

    def by_precision(self) -> dict[str, list[str]]:
        """Return the layers of each precision, by name."""
        layers: dict[str, list[str]] = {}
        for name, precision in self.precisions:
            layers.setdefault(precision, []).append(name)
        return layers

    @property
    def is_mixed(self) -> bool:
        """Whether it has precisions other than int8 and float32."""
        return not {precision for _, precision in self.precisions} <= {INT8, FLOAT32}

    def counted(self, by_precision: bool) -> str:
        """Return how many layers are left in float32 (2 of 9), or have each precision."""
        if not by_precision:
            return f"{len(self.excluded)} of {len(self.precisions)}"
        counts = Counter(family(precision) for _, precision in self.precisions)
        return " ".join(f"{counts[name]}x{short}" for name, short in SHORT.items() if counts[name])

    def in_words(self) -> str:
        """Describe the precisions of its layers."""
        counted = self.counted(self.is_mixed)
        return f"layers {counted}" if self.is_mixed else f"{counted} layers in float32"

    @property
    def key(self) -> str:
        """A key of the content: the same choice has the same key."""
        return content_key([self.precisions, self.scheme] if self.scheme else self.precisions)
