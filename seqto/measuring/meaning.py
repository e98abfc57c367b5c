"""What the outputs of a study's model mean, found before anything is calibrated."""

import numpy as np

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DatasetError, ModelError, NotFiniteError
from seqto.graph.fixed_outputs import is_random
from seqto.measuring.outputs import run_all
from seqto.measuring.parts import Parts
from seqto.protocols import Dataset, GuessedTask, Task
from seqto.tasks.regression import Regression
from seqto.types import Interface, Model, Observed, Outputs, Samples, Splits

_FEW = 8
"""How many samples are looked at."""

_ROUNDING = 1e-5
"""How far the values of two runs may be apart."""

_ROOM = 2 * 2**30
"""How many bytes of outputs are held at most; each process holds as many again."""


def find_task(parts: Parts, model: Model, interface: Interface, splits: Splits) -> tuple[Task, str]:
    """Return what the outputs mean, and the reason if it had to be guessed.

    With a metric of the user's own, which says what a loss is, an unclear model is ranked by the
    noise in all its outputs.
    """
    few = splits.calibration.first(_FEW)
    outputs = _seen(model, few, Observed(interface.outputs), plain_device(parts))
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
        without = " Without labels: dataset.labels=false." if _may_leave_out(dataset) else ""
        raise DatasetError(f"{error}{without}") from error
    return {name: each.value for name, each in scores.items()}


def _may_leave_out(dataset: Dataset) -> bool:
    """Tell whether labels are named in the config; those of a call are values."""
    return hasattr(dataset, "labels") and isinstance(dataset.labels, str | None)


def plain_device(parts: Parts) -> OnnxRuntimeDevice:
    """Return what the float model is looked at with, in the time that the device gives a batch."""
    given = parts.device
    if not isinstance(given, OnnxRuntimeDevice):
        return OnnxRuntimeDevice()
    return OnnxRuntimeDevice(seconds=given.seconds)


def _seen(model: Model, few: Samples, observed: Observed, device: OnnxRuntimeDevice) -> Outputs:
    """Return the outputs of some samples; refuse a model that does not repeat them."""
    program = device.load(model)
    try:
        outputs = run_all(program, model, few, 1, observed)
        # In one session, because those of a process all draw the same numbers.
        if is_random(model.proto.graph):
            again = run_all(program, model, few, 1, observed)
            _require_same(outputs, again)
    except NotFiniteError as error:
        raise ModelError(
            f"{error}, in float already, so candidates cannot be compared. Check the samples; mask "
            "scores with a number such as -10000 instead of minus infinity; or choose other "
            "outputs with 'model.outputs=[...]'."
        ) from error
    finally:
        program.close()
    return outputs


def _require_same(outputs: Outputs, again: Outputs) -> None:
    for name, entries in outputs.items():
        if not all(map(_is_same, entries, again[name])):
            raise ModelError(
                f"the model draws random numbers, so that its output {name!r} is another one each "
                "time it runs, and losses would mean nothing: export it without them, fix the "
                "input that scales them with dataset.constants, or choose other outputs with "
                "'model.outputs=[...]'."
            )


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)


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
