"""What a search trades off against harm."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Whether a study trades off size and latency, and the most milliseconds that it accepts."""

    size: bool = True
    latency: bool = False
    max_latency_ms: float | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the search has to know how long candidates take."""
        return self.latency or self.max_latency_ms is not None
