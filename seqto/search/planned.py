"""The common part of searches that know all their candidates from the start."""

from collections.abc import Iterable

from seqto.types import Candidate, Trial


class Planned:
    """A list of candidates, made when the search starts and then worked off."""

    _pending: tuple[Candidate, ...] = ()

    def plan(self, candidates: Iterable[Candidate]) -> None:
        """Make the list, with each candidate once."""
        self._pending = tuple(dict.fromkeys(candidates))

    def ask(self, count: int) -> list[Candidate]:
        """Return the next `count` candidates of the list."""
        taken, self._pending = self._pending[:count], self._pending[count:]
        return list(taken)

    def tell(self, trial: Trial) -> None:
        """Ignore the result: the list is fixed."""

    def remaining(self) -> int:
        """Return how many candidates are left."""
        return len(self._pending)
