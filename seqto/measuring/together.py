"""How many samples run at a time without a change in their outputs."""

import logging

import numpy as np

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceError
from seqto.measuring.outputs import run_all
from seqto.types import Model, Observed, Outputs, Samples

_log = logging.getLogger(__name__)

_ROUNDING = 1e-3
"""How far values may be apart, as a share of the largest one: kernels differ by batch."""


def usable_batch(model: Model, samples: Samples, batch: int, observed: Observed) -> int:
    """Return this batch, or 1 where the float model takes or treats samples one by one.

    Exports are traced with one sample, whatever their shapes say, and some models compare the
    samples of a batch with each other.
    """
    if batch == 1 or samples.fixed_batch or len(samples) == 1:
        return batch
    few = samples.first(batch)
    program = OnnxRuntimeDevice().load(model)
    try:
        alone = run_all(program, model, few, 1, observed)
        together = run_all(program, model, few, batch, observed)
        fits = _are_alike(alone, together)
    except DeviceError as error:
        _log.info("Samples do not run together: %s", error)
        fits = False
    finally:
        program.close()
    if not fits:
        _log.warning("In a batch samples have other outputs, or none: they run one at a time.")
    return batch if fits else 1


def _are_alike(alone: Outputs, together: Outputs) -> bool:
    return all(
        _is_alike(np.asarray(one), np.asarray(other))
        for name, entries in alone.items()
        for one, other in zip(entries, together[name], strict=True)
    )


def _is_alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        # Rounding may change a few of many classes.
        return bool((one != other).mean() <= _ROUNDING) if one.size else True
    largest = float(np.abs(one).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=0, atol=_ROUNDING * largest))
