"""What searches share that know all their candidates from the start."""

from collections.abc import Iterable

from seqto.types import Candidate, Trial


class Planned:
    """A list of candidates, drawn up when the search starts and then worked off."""

    _pending: tuple[Candidate, ...] = ()

    def plan(self, candidates: Iterable[Candidate]) -> None:
        """Draw up the list, each candidate once."""
        self._pending = tuple(dict.fromkeys(candidates))

    def ask(self, count: int) -> list[Candidate]:
        """Return the next candidates of the list."""
        taken, self._pending = self._pending[:count], self._pending[count:]
        return list(taken)

    def tell(self, trial: Trial) -> None:
        """Ignore the result: the list is drawn up."""

    def remaining(self) -> int:
        """Return how many candidates are left."""
        return len(self._pending)
