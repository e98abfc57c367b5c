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
"""The tables of a study: compared full quantizations, and screened candidates."""

COMMAND = "seqto.command"
"""The study's tag with its command line."""

MACHINE_TAG = "seqto.machine"
"""The tag with a kind of machine: of a study, the one that its latencies are of."""

OVERRIDES = "seqto.overrides"
CONSTRAINT = "seqto.constraint"
REGISTERED = "seqto.registered_model"
SAMPLES = "seqto.evaluation_samples"
RECOMMEND = "seqto.recommend"
INPUTS = "seqto.inputs"
"""Tags of a study: its overrides and limits as JSON, the name of its registered model, on how many
samples it evaluates, by which rule it recommends, and the model's inputs for one sample as JSON."""


@dataclass(frozen=True)
class StudyPlan:
    """What is recorded before a study begins; the same key means the same study."""

    key: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    config: str
    data: tuple[DataSplit, ...] = ()


@dataclass(frozen=True)
class Address:
    """The address of a study's page, and the command that serves it if one is needed."""

    url: str
    command: str = ""


@dataclass(frozen=True)
class StudyRecord:
    """A study as the tracker holds it: everything that the front and the report need.

    `baseline` has the float model's figures under the names of the trials' metrics; `tables` are
    the schemes and the screening, by name.
    """

    id: str
    key: str
    tags: Mapping[str, str]
    baseline: Mapping[str, float]
    scores: tuple[LayerScore, ...]
    trials: tuple[Trial, ...]
    tables: Mapping[str, Table] = field(default_factory=dict)
