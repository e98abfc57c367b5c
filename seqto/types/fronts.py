"""What a study selects: the front, its recommended members, and registered versions."""

from dataclasses import dataclass

from seqto.types.trials import Trial


@dataclass(frozen=True)
class Recommendation:
    """A recommended trial, and the alias under which it is recommended."""

    alias: str
    trial: Trial


@dataclass(frozen=True)
class Front:
    """The Pareto-optimal trials of a study, by the first objective, and the recommended ones."""

    objectives: tuple[str, ...]
    members: tuple[Trial, ...]
    recommended: tuple[Recommendation, ...]
    hypervolume: float

    def aliases(self, trial: Trial) -> tuple[str, ...]:
        """Return the names under which this trial is recommended."""
        return tuple(each.alias for each in self.recommended if each.trial.id == trial.id)


@dataclass(frozen=True)
class Version:
    """A version of a registered model, as the registry holds it.

    `trial` is its candidate, with the figures of its study; `data` is the fingerprint of its
    samples. Versions that seqto did not register have neither.
    """

    name: str
    number: str
    trial: Trial
    aliases: tuple[str, ...] = ()
    data: str = ""
    rolled_back: bool = False

    def __str__(self) -> str:
        return f"version {self.number}"
