"""What a model's outputs mean."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from seqto.protocols.metrics import Metric
from seqto.types import Estimate, Outputs, Targets, TensorSpec


class Harm(Protocol):
    """A measure of the distance to the float model's outputs: it ranks layers and screens.

    It is finer than a loss, which counts what a user notices: of two candidates that lose nothing
    on the few samples at hand, it still tells which one is nearer to the float model.
    """

    name: str

    def per_sample(self, outputs: Outputs) -> np.ndarray:
        """Return the harm to each of the first samples: finite, and never negative.

        Outputs may be of fewer samples than the reference. The float model's own outputs have a
        harm of 0, and more noise does more harm. An output that is not finite, or has no use for
        the task, has a large harm instead of raising.
        """
        ...


class Task(Protocol):
    """What a model's outputs mean: when a sample is lost, what harm is, what a target says.

    A task is made of pure functions of outputs: it runs no model, and changes no array. Outputs
    that do not fit it are refused by `metric.losses`, `harm` and `scores` alike with a ModelError,
    which names the output, its shape, what the task expects, and the keys to change.
    """

    name: str

    @property
    def metric(self) -> Metric:
        """What the accuracy loss is, unless users choose a metric of their own."""
        ...

    def harm(self, reference: Outputs) -> Harm:
        """Return the measure of the distance to these outputs of the float model."""
        ...

    def scores(self, outputs: Outputs, targets: Targets) -> Mapping[str, Estimate]:
        """Return figures of how well outputs meet their targets, the most telling one first.

        Their names are those of `seqto.figures.table`. Targets that do not fit the task, or this
        model, are refused with a DatasetError.
        """
        ...


@runtime_checkable
class Remarks(Protocol):
    """Optional, for a task that has to say how its losses are to be read."""

    def remark(self, reference: Outputs) -> str:
        """Return what users should know of losses against these outputs; mostly nothing."""
        ...


@runtime_checkable
class ForeseesLoss(Protocol):
    """Optional, for a task that can tell the loss of many samples from the outputs of a few.

    It says what is worth an evaluation, and is never reported.
    """

    def expected_loss(self, reference: Outputs, before: Outputs, after: Outputs) -> float | None:
        """Return about what the metric's mean loss would be on the samples of `reference`.

        `before` are the float model's outputs for a few other samples, and `after` those of the
        model in question. None if the metric does not allow it.
        """
        ...


@runtime_checkable
class GuessedTask(Protocol):
    """Stands for a task that is found by looking at a model's outputs."""

    name: str

    def of(
        self, outputs: Outputs, inputs: Sequence[TensorSpec], targets: Targets | None
    ) -> tuple[Task, str]:
        """Return the task of a model with these outputs for a few samples, and what tells it.

        Where it is not clear, a ModelError says what was seen, and which words to add.
        """
        ...
