"""From a dataset to what a model is fed with: one place for all datasets."""

import logging
from dataclasses import replace

import numpy as np

from seqto.errors import DatasetError
from seqto.protocols import Dataset, HasInputs
from seqto.types import Interface, Samples, Splits, TensorSpec

_log = logging.getLogger(__name__)

_MASK = "attention_mask"


def load_splits(dataset: Dataset, interface: Interface) -> Splits:
    """Return a dataset's splits, ready to be fed to a model of this interface.

    States that the dataset does not have are zero.
    """
    given = [each for each in interface.states if _has(dataset, each.name)]
    splits = dataset.load([*interface.inputs, *given])
    missing = [each for each in interface.states if each not in given]
    if missing:
        _log.info("These inputs are states, and start at zero: %s.", ", ".join(map(str, missing)))
    _require_batches(splits, interface.fixed_batch)
    return replace(
        splits,
        calibration=_fed(splits.calibration, interface, missing),
        evaluation=_fed(splits.evaluation, interface, missing),
    )


def _has(dataset: Dataset, name: str) -> bool:
    return isinstance(dataset, HasInputs) and dataset.has(name)


def _fed(samples: Samples, interface: Interface, missing: list[TensorSpec]) -> Samples:
    return replace(
        samples,
        inputs={**samples.inputs, **{each.name: _zeros(each, len(samples)) for each in missing}},
        mask=_mask(samples),
        batch_axes=interface.batch_axes,
        fixed_batch=interface.fixed_batch,
    )


def _zeros(state: TensorSpec, count: int) -> np.ndarray:
    """Return a state at its start for each sample, without memory for each."""
    shape = [0 if each is None else each for each in state.shape[1:]]
    return np.broadcast_to(np.zeros((), state.dtype), (count, *shape))


def _mask(samples: Samples) -> np.ndarray | None:
    """Return which positions count: as the dataset says, or as the model is told."""
    told = samples.inputs.get(_MASK)
    if samples.mask is not None or told is None or told.ndim != 2:
        return samples.mask
    return np.asarray(told != 0)


def _require_batches(splits: Splits, fixed: int | None) -> None:
    # At least two batches, because rankings are compared between two halves of the samples.
    if fixed is not None and fixed > 1 and len(splits.calibration) < 2 * fixed:
        raise DatasetError(
            f"the model takes batches of exactly {fixed} samples: set dataset.calibration_size to "
            f"{2 * fixed} or more (it is {len(splits.calibration)}), or export the model with a "
            "free batch dimension."
        )
