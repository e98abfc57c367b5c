"""A study as it is planned, and as the tracker holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqto.types.layer_scores import LayerScore
from seqto.types.samples import DataSplit
from seqto.types.trials import Trial

Table = Sequence[Mapping[str, str | float | bool | None]]
"""Plain rows, ready for JSON."""

SCHEMES = "schemes"
SCREENING = "screening"
TABLES = (SCHEMES, SCREENING)
"""What a study records on the way: full quantizations compared, candidates screened."""

COMMAND = "seqto.command"
"""The tag of a study that has the command line that made it."""

OVERRIDES = "seqto.overrides"
CONSTRAINT = "seqto.constraint"
REGISTERED = "seqto.registered_model"
"""Tags of a study: its command line and its limits as JSON, the name of its registered models."""


@dataclass(frozen=True)
class StudyPlan:
    """What a study is about: its key is its content, so the same plan is the same study."""

    key: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    config: str
    data: tuple[DataSplit, ...] = ()


@dataclass(frozen=True)
class Address:
    """Where a person looks at a study: a page, and the command that serves it if one is needed."""

    url: str
    command: str = ""


@dataclass(frozen=True)
class StudyRecord:
    """A study as the tracker holds it: all that the front and the report are made from.

    `baseline` has the float model's own figures under the names of the trials' metrics, `tables`
    what was found on the way, by name.
    """

    id: str
    key: str
    tags: Mapping[str, str]
    baseline: Mapping[str, float]
    scores: tuple[LayerScore, ...]
    trials: tuple[Trial, ...]
    tables: Mapping[str, Table] = field(default_factory=dict)
