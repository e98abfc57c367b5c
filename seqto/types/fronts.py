"""What is chosen: the front, its recommended members, and registered versions."""

from dataclasses import dataclass

from seqto.types.trials import Trial


@dataclass(frozen=True)
class Recommendation:
    """A front member worth taking, and under which name."""

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

    `trial` is the candidate that it is, with the figures of its study; `data` names what it was
    evaluated on. Versions that seqto did not register have figures of neither.
    """

    name: str
    number: str
    trial: Trial
    aliases: tuple[str, ...] = ()
    data: str = ""
    rolled_back: bool = False

    def __str__(self) -> str:
        return f"version {self.number}"
