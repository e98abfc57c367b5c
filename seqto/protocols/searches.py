"""Which candidates are tried."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from seqto.types import Candidate, Goal, LatencyModel, LayerScore, Trial


class Search(Protocol):
    """Which candidates to try, in rounds of ask and tell.

    A search knows only the layers of the ranking; `seqto.search.walk` adds the candidates' scheme,
    and the layers that the device cannot run quantized. A candidate has a precision for every layer
    of the ranking, the same within one unit, and none is returned twice. `start` resets the search;
    the same study gives the same candidates. A failed trial does not end it. With an empty ranking,
    `ask` returns nothing.
    """

    name: str

    @property
    def screens(self) -> int:
        """On how many samples candidates are screened first; 0 evaluates all in full.

        If it screens, `tell` gets the `divergence` and `size_bytes` on these samples, and the front
        of the screened candidates is then evaluated in full, up to `evaluations` of them.
        """
        ...

    @property
    def evaluations(self) -> int:
        """At most how many screened candidates are evaluated in full, at least 3; else 0."""
        ...

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Begin a study of these layers, the most sensitive first; there may be none."""
        ...

    def ask(self, count: int) -> list[Candidate]:
        """Return up to `count` candidates to measure next; none when the search is over."""
        ...

    def tell(self, trial: Trial) -> None:
        """Receive a trial's result, complete or failed; called in the order of `ask`."""
        ...

    def remaining(self) -> int:
        """Return at most how many candidates are still to come."""
        ...


@runtime_checkable
class SearchesLatency(Protocol):
    """Optional, for a search that can look for fast candidates."""

    def start_timed(self, ranking: Sequence[LayerScore], latency: LatencyModel, goal: Goal) -> None:
        """Begin as `start` does, where latency is traded off or limited.

        `latency` predicts how long candidates take. It knows all layers; those that the ranking
        does not have stay in float32. `tell` gets the prediction as `latency_predicted_ms`.
        """
        ...
