"""The extension points: what a new model source, dataset, quantizer, device, ... has to offer.

A class is used by naming it as `_target_` in a config of its group; there is no registry.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seqto.types import (
    Address,
    Arrays,
    Candidate,
    Front,
    Kernel,
    Latency,
    Layer,
    LayerScore,
    Measurement,
    Model,
    Ranges,
    Recommendation,
    Samples,
    Splits,
    StudyPlan,
    StudyRecord,
    Table,
    TensorSpec,
    Trial,
    TrialState,
)


class ModelSource(Protocol):
    """Where a model comes from."""

    name: str

    def load(self) -> Model:
        """Return the model as it was published; raise ModelError if it cannot be had."""
        ...


class Dataset(Protocol):
    """Where samples come from."""

    name: str
    chunk_size: int

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits in the shapes that the model's inputs ask for; raise DatasetError."""
        ...


class Quantizer(Protocol):
    """How a model is quantized."""

    name: str

    @property
    def batch_invariant(self) -> bool:
        """False where the outputs for a sample depend on the others in its batch."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """What a layer may be in."""
        ...

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how much of the model's file a layer takes in this precision."""
        ...

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model in the form that `quantize` takes, and its quantizable layers."""
        ...

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the ranges of the activations; empty where none are needed."""
        ...

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model of this candidate, the same bytes each time."""
        ...


@runtime_checkable
class SeveralSchemes(Protocol):
    """What a quantizer offers besides that has several ways to quantize."""

    samples: int
    """On how many samples they are compared."""
    bases: int
    """How many of them candidates are made from, at the most."""

    @property
    def schemes(self) -> Mapping[str, Quantizer]:
        """The ways, by the name that candidates have as their scheme."""
        ...


class Sensitivity(Protocol):
    """How much quantization hurts each layer."""

    name: str

    def score(
        self,
        model: Model,
        layers: Sequence[Layer],
        quantizer: Quantizer,
        ranges: Ranges,
        samples: Samples,
    ) -> tuple[LayerScore, ...]:
        """Return a score a layer, the most hurt first."""
        ...


class Search(Protocol):
    """Which candidates to try, in rounds of ask and tell."""

    name: str

    @property
    def screens(self) -> int:
        """On how many samples candidates are measured first; 0: all are evaluated in full.

        A search that screens is told of `divergence` and `size_bytes` on these samples, and
        the front of what it asked for is then evaluated in full, up to its `evaluations`.
        """
        ...

    @property
    def evaluations(self) -> int:
        """How many candidates are evaluated in full, at the most."""
        ...

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Begin a study of these layers, the most hurt first."""
        ...

    def ask(self, count: int) -> list[Candidate]:
        """Return up to `count` candidates to measure next; none when the search is over."""
        ...

    def tell(self, trial: Trial) -> None:
        """Take note of a trial that ended, complete or failed; in the order of `ask`."""
        ...

    def remaining(self) -> int:
        """Return how many candidates are still to be asked for, at the most."""
        ...


class Program(Protocol):
    """A model loaded on a device."""

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs for these samples, in the order of the graph."""
        ...

    def time(self, inputs: Arrays) -> Latency:
        """Return how long inference of these samples takes, warmed up."""
        ...

    def close(self) -> None:
        """Free what the program holds."""
        ...


class Device(Protocol):
    """What candidates run on.

    A device that takes long to load a model may have another one as `stand_in`, on which a search
    screens its candidates.
    """

    name: str

    def load(self, model: Model) -> Program:
        """Return the model ready to run; raise DeviceError if the device cannot."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what a reader must know to compare results, as short facts by name.

        There is a `runtime`. Facts named `session.*` are options that the model needs
        wherever it is loaded.
        """
        ...

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return what runs each node of the model, by the node's name, as far as it is known."""
        ...


class Metric(Protocol):
    """How far a candidate's outputs are from the float model's."""

    name: str

    def loss(self, reference: np.ndarray, outputs: np.ndarray) -> float:
        """Return the accuracy loss, a fraction in [0, 1]."""
        ...


class TrialLog(Protocol):
    """Where single trials are recorded."""

    def start_trial(self, study: str | None, index: int, candidate: Candidate, name: str) -> str:
        """Return the id of a new RUNNING trial of this study, or of none."""
        ...

    def finish_trial(self, trial: str, measurement: Measurement, duplicate_of: int | None) -> None:
        """Record what a trial measured, or an earlier one of the same model: it is COMPLETE."""
        ...

    def end_trial(self, trial: str, state: TrialState, reason: str) -> None:
        """Record that a trial FAILED or was KILLED, and why."""
        ...

    def trial(self, trial: str) -> Trial:
        """Return a trial by its id."""
        ...

    def twin(self, study: str, model_sha256: str) -> Trial | None:
        """Return the COMPLETE trial of this study that measured this very model, if any."""
        ...


class Tracker(TrialLog, Protocol):
    """Where studies and their trials are recorded."""

    def open_study(self, plan: StudyPlan, resume: bool) -> str:
        """Return the id of a RUNNING study: the last one of this key if resumed, else a new one.

        Trials that a resumed study left RUNNING are KILLED.
        """
        ...

    def log_analysis(
        self, study: str, baseline: Mapping[str, float], scores: Sequence[LayerScore]
    ) -> None:
        """Record the float model's figures and the layers' scores."""
        ...

    def log_figures(self, study: str, figures: Mapping[str, float]) -> None:
        """Record further figures of the study itself."""
        ...

    def tag_study(self, study: str, tags: Mapping[str, str]) -> None:
        """Record further tags of the study, in place of those of the same name."""
        ...

    def log_table(self, study: str, name: str, table: Table) -> None:
        """Record what was found on the way, under this name; a later one replaces it."""
        ...

    def log_document(self, study: str, name: str, document: Mapping[str, Any]) -> None:
        """Record a JSON document of the study, in place of one of the same name."""
        ...

    def read_document(self, study: str, name: str) -> Mapping[str, Any] | None:
        """Return a document that was recorded under this name, if any."""
        ...

    def trials(self, study: str) -> tuple[Trial, ...]:
        """Return the last trial of each candidate, by index."""
        ...

    def read_study(self, study: str) -> StudyRecord:
        """Return all that is recorded of a study; no scores as long as it was not analysed."""
        ...

    def log_front(self, study: str, front: Front, files: Sequence[Path]) -> None:
        """Mark the front's members, and record its figures and these files with the study."""
        ...

    def log_note(self, study: str, text: str) -> None:
        """Put a text on the study's page, above what a person wrote there."""
        ...

    def log_model(
        self, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
    ) -> None:
        """Store a trial's model, once, with its signature and what its device said of itself."""
        ...

    def register(self, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
        """Register the recommended trials' models under this name, with their aliases."""
        ...

    def close_study(self, study: str, state: TrialState) -> None:
        """End a study: COMPLETE only after its final step. Trials left RUNNING are KILLED."""
        ...

    def address(self, study: str) -> Address:
        """Return where a person looks at the study."""
        ...

    def pages(self, study: str, front: Front) -> Mapping[str, str]:
        """Return links for the study's page: `report`, `candidates`, `charts`, `compare`.

        The page of each member of the front is there under its id. What a tracker has no page
        for is missing.
        """
        ...
