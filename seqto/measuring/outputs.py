"""A model's outputs for all samples on a device."""

from collections.abc import Sequence

import numpy as np

from seqto.errors import DeviceError, ModelError, varying_output
from seqto.protocols import Device, Program
from seqto.types import Model, Samples


def outputs_of(model: Model, samples: Samples, batch: int, device: Device) -> np.ndarray:
    """Return the model's first output for all samples on the device."""
    program = device.load(model)
    try:
        return run_all(program, samples, batch, model.proto.graph.output[0].name)
    finally:
        program.close()


def run_all(program: Program, samples: Samples, batch: int, name: str = "") -> np.ndarray:
    """Return the first output, which errors call by its name, for all samples, run in batches."""
    sizes, found = [], []
    for inputs in samples.batches(batch):
        sizes.append(len(next(iter(inputs.values()))))
        found.append(program.run(inputs)[0])
    _require_one_shape(found, sizes, name)
    outputs = np.concatenate(found)
    if samples.fixed_batch:
        outputs = outputs[: len(samples)]
    if not np.isfinite(outputs).all():
        raise DeviceError("the model's output is not finite: it has NaN or infinite values")
    return outputs


def _require_one_shape(found: Sequence[np.ndarray], sizes: Sequence[int], name: str) -> None:
    """Raise if the outputs of batches of these sizes cannot be one array, or have no entries."""
    first, called = found[0], f"the model's first output{f' {name!r}' if name else ''}"
    if not first.ndim:
        raise ModelError(
            f"{called} is a single number, without an axis for samples. Export the model with an "
            "output that has a batch dimension."
        )
    for each, size in zip(found, sizes, strict=True):
        # The last batch may be smaller.
        expected = (len(first) * size // sizes[0], *first.shape[1:])
        if each.shape not in (first.shape, expected):
            raise varying_output([first.shape, each.shape], name)
    if not first.size:
        raise ModelError(
            f"{called} has no entries (it has the shape {list(first.shape)}), so candidates cannot "
            "be compared. Give samples in which the model finds something, or export it without "
            "NonMaxSuppression, with the outputs before it."
        )
