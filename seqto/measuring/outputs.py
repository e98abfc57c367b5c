"""A model's outputs for all samples on a device."""

import numpy as np

from seqto.errors import DeviceError
from seqto.protocols import Device, Program
from seqto.types import Model, Samples


def outputs_of(model: Model, samples: Samples, batch: int, device: Device) -> np.ndarray:
    """Return the model's first output for all samples on the device."""
    program = device.load(model)
    try:
        return run_all(program, samples, batch)
    finally:
        program.close()


def run_all(program: Program, samples: Samples, batch: int) -> np.ndarray:
    """Return the first output for all samples, run in batches."""
    outputs = np.concatenate([program.run(inputs)[0] for inputs in samples.batches(batch)])
    if samples.fixed_batch:
        outputs = outputs[: len(samples)]
    if not np.isfinite(outputs).all():
        raise DeviceError("the model's output is not finite: it has NaN or infinite values")
    return outputs
