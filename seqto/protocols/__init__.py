"""The extension points: what a new model source, dataset, quantizer, device, ... has to offer.

A class is used by naming it as `_target_` in a config of its group, or by handing an object of it
to `seqto.tune`; there is no registry. One file per extension point: the protocol, what its
conformance suite (`tests/suite_*.py`) expects beyond the signatures, and the protocols of what an
implementation may offer besides.

For all of them:
- A part is a dataclass with keyword arguments, checked when it is made (pydantic's dataclasses do).
- Its class and its fields are its identity: two objects that differ in a field have other keys, and
  nothing cached for one is used for the other. A field that changes no result, such as where a file
  lies, is declared with `field(compare=False)`. State goes into attributes that begin with `_`.
- It can be pickled, as candidates are measured by other processes.
- It raises a `SeqtoError` of the kind named in its protocol; the message says cause, valid choices
  and remedy in one line.
- It writes to no file of the user's, and prints nothing.
- It imports no room of seqto above or beside its own (`tests/test_imports.py` has the rule, and
  which libraries each room may import); heavy libraries are imported where they are used.
"""

from seqto.protocols.datasets import Dataset
from seqto.protocols.devices import Device, Program, SeveralWorkers, SharesPrefixes, StandIn
from seqto.protocols.metrics import Metric
from seqto.protocols.quantizers import Quantizer, SeveralSchemes
from seqto.protocols.searches import Search
from seqto.protocols.sensitivities import Sensitivity
from seqto.protocols.sources import Fetched, ModelSource
from seqto.protocols.trackers import (
    FrontLog,
    Pages,
    Served,
    StudyLog,
    StudyReader,
    Tracker,
    TrialLog,
)

__all__ = [
    "Dataset",
    "Device",
    "Fetched",
    "FrontLog",
    "Metric",
    "ModelSource",
    "Pages",
    "Program",
    "Quantizer",
    "Search",
    "Sensitivity",
    "Served",
    "SeveralSchemes",
    "SeveralWorkers",
    "SharesPrefixes",
    "StandIn",
    "StudyLog",
    "StudyReader",
    "Tracker",
    "TrialLog",
]
