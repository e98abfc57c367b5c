"""Which candidates are tried."""

from collections.abc import Sequence
from typing import Protocol

from seqto.types import Candidate, LayerScore, Trial


class Search(Protocol):
    """Which candidates to try, in rounds of ask and tell.

    A search knows the layers of the ranking and nothing else: which of several schemes a candidate
    is quantized by, and layers that the device cannot run quantized, are added by who asks. It
    gives every layer of the ranking a precision, the layers of one unit the same, and asks for no
    candidate twice. `start` forgets all that was before; the same study gives the same candidates.
    A failed trial does not end it. With an empty ranking there is nothing to ask for.
    """

    name: str

    @property
    def screens(self) -> int:
        """On how many samples candidates are measured first; 0: all are evaluated in full.

        A search that screens is told the `divergence` and `size_bytes` on these samples, and
        the front of what it asked for is then evaluated in full, up to its `evaluations`.
        """
        ...

    @property
    def evaluations(self) -> int:
        """How many candidates are evaluated in full, at the most: 3 or more; 0 without a screen."""
        ...

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Begin a study of these layers, the most hurt first; there may be none."""
        ...

    def ask(self, count: int) -> list[Candidate]:
        """Return up to `count` candidates to measure next; none when the search is over."""
        ...

    def tell(self, trial: Trial) -> None:
        """Take the result of a trial, complete or failed; called in the order of `ask`."""
        ...

    def remaining(self) -> int:
        """Return how many candidates are still to be asked for, at the most."""
        ...
