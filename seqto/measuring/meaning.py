"""What the outputs of a study's model mean, found before anything is calibrated."""

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DatasetError, ModelError
from seqto.measuring.outputs import outputs_of
from seqto.measuring.parts import Parts
from seqto.protocols import Dataset, GuessedTask, Task
from seqto.tasks.regression import Regression
from seqto.types import Interface, Model, Observed, Outputs, Samples, Splits

_FEW = 8
"""How many samples are looked at."""

_ROOM = 2 * 2**30
"""How many bytes of outputs are held at most; each process holds as many again."""


def find_task(parts: Parts, model: Model, interface: Interface, splits: Splits) -> tuple[Task, str]:
    """Return what the outputs mean, and the reason if it had to be guessed.

    With a metric of the user's own, which says what a loss is, an unclear model is ranked by the
    noise in all its outputs.
    """
    few = splits.calibration.first(_FEW)
    outputs = outputs_of(model, few, 1, OnnxRuntimeDevice(), Observed(interface.outputs))
    _require_room(outputs, len(few), len(splits.evaluation))
    if not isinstance(parts.task, GuessedTask):
        return parts.task, ""
    try:
        return parts.task.of(outputs, interface.inputs, few.targets)
    except ModelError:
        if parts.metric is None:
            raise
        return Regression(), "the outputs do not tell, and the metric is your own"


def float_scores(
    task: Task, reference: Outputs, samples: Samples, dataset: Dataset
) -> dict[str, float]:
    """Return how well the float model meets the targets, if there are any."""
    if samples.targets is None:
        return {}
    try:
        scores = task.scores(reference, samples.targets)
    except DatasetError as error:
        # Image folders have classes, also where a model finds boxes in the images.
        without = " Without labels: dataset.labels=false." if hasattr(dataset, "labels") else ""
        raise DatasetError(f"{error}{without}") from error
    return {name: each.value for name, each in scores.items()}


def _require_room(outputs: Outputs, seen: int, samples: int) -> None:
    """Raise if the outputs of all samples would not fit into memory."""
    total = sum(each.nbytes for entries in outputs.values() for each in entries)
    needed = total / seen * samples
    if needed > _ROOM:
        raise DatasetError(
            f"the outputs of {samples} samples would take {needed / 2**30:.1f} GiB: set "
            f"dataset.evaluation_size to {int(samples * _ROOM / needed)} or less, or compare fewer "
            "outputs with model.outputs=[...]."
        )
