"""The extension points: what a new model source, dataset, quantizer, device, ... must offer.

To use a class, name it as `_target_` in a config of its group, or pass an object to `seqto.tune`;
there is no registry. One file per extension point has the protocol, what its conformance suite
(`tests/suite_*.py`) expects beyond the signatures, and the protocols of optional features.

For all of them:
- A part is a dataclass with keyword arguments, checked on creation (by pydantic's dataclasses).
- Its class and its fields are its identity: two objects that differ in a field have different keys,
  and share no cached results. A field that changes no result, such as a file's path, is declared
  with `field(compare=False)`. State goes into attributes that are no fields.
- It can be pickled, because other processes measure candidates.
- It raises a `SeqtoError` of the kind named in its protocol; the message says cause, valid choices
  and remedy in one line.
- It does not write to the user's files, and prints nothing.
- It imports no package of seqto above or beside its own (`tests/test_imports.py` has the rule, and
  which libraries each package may import); heavy libraries are imported where they are used.
"""

from seqto.protocols.datasets import Dataset, HasInputs
from seqto.protocols.devices import (
    DecodesWeights,
    Device,
    HasNeeds,
    MeasuresLoading,
    Profiles,
    Program,
    SeveralWorkers,
    SharesPrefixes,
    StandIn,
    TakesTurns,
)
from seqto.protocols.metrics import JudgesAlone, Metric
from seqto.protocols.quantizers import Learns, Previews, Quantizer, SeveralSchemes, previewed
from seqto.protocols.searches import Search, SearchesLatency
from seqto.protocols.sensitivities import PredictsPrecisions, Sensitivity
from seqto.protocols.sources import Fetched, ModelSource
from seqto.protocols.tasks import ForeseesLoss, GuessedTask, Harm, Remarks, Task
from seqto.protocols.trackers import (
    Exclusive,
    FrontLog,
    Pages,
    Served,
    Shared,
    StudyLog,
    StudyReader,
    Tracker,
    TrialLog,
)

__all__ = [
    "Dataset",
    "DecodesWeights",
    "Device",
    "Exclusive",
    "Fetched",
    "ForeseesLoss",
    "FrontLog",
    "GuessedTask",
    "Harm",
    "HasInputs",
    "HasNeeds",
    "JudgesAlone",
    "Learns",
    "MeasuresLoading",
    "Metric",
    "ModelSource",
    "Pages",
    "PredictsPrecisions",
    "Previews",
    "Profiles",
    "Program",
    "Quantizer",
    "Remarks",
    "Search",
    "SearchesLatency",
    "Sensitivity",
    "Served",
    "SeveralSchemes",
    "SeveralWorkers",
    "Shared",
    "SharesPrefixes",
    "StandIn",
    "StudyLog",
    "StudyReader",
    "TakesTurns",
    "Task",
    "Tracker",
    "TrialLog",
    "previewed",
]
