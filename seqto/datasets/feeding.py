"""From a dataset to what a model is fed with: one place for all datasets."""

import logging
import re
from dataclasses import replace

import numpy as np

from seqto.errors import DatasetError
from seqto.protocols import Dataset, HasInputs
from seqto.types import Interface, Samples, Splits, Targets, TensorSpec

_log = logging.getLogger(__name__)

_MASK = re.compile(r"(attention|input)_mask(:0)?")
"""What exporters call the input that tells padding: 0 where there is some."""


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
    mask = _mask(samples)
    return replace(
        samples,
        inputs={**samples.inputs, **{each.name: _zeros(each, len(samples)) for each in missing}},
        targets=_without_padding(samples.targets, mask),
        mask=mask,
        batch_axes=interface.batch_axes,
        fixed_batch=interface.fixed_batch,
    )


def _zeros(state: TensorSpec, count: int) -> np.ndarray:
    """Return a state at its start for each sample, without memory for each."""
    shape = [0 if each is None else each for each in state.shape[1:]]
    return np.broadcast_to(np.zeros((), state.dtype), (count, *shape))


def _mask(samples: Samples) -> np.ndarray | None:
    """Return which positions count: as the dataset says, or as the model is told."""
    told = [each for name, each in samples.inputs.items() if _MASK.fullmatch(name)]
    if samples.mask is not None or len(told) != 1 or told[0].ndim != 2:
        return samples.mask
    return np.asarray(told[0] != 0)


def _without_padding(targets: Targets | None, mask: np.ndarray | None) -> Targets | None:
    """Return targets of positions without those of padding, which outputs do not have either."""
    if targets is None or mask is None:
        return targets
    if not all(_is_per_position(each, mask.shape[1]) for each in targets):
        return targets
    return [np.asarray(each)[counts] for each, counts in zip(targets, mask, strict=True)]


def _is_per_position(target: object, width: int) -> bool:
    if not isinstance(target, np.ndarray | list | tuple) or len(target) != width:
        return False
    found = np.asarray(target)
    return found.ndim == 1 and found.dtype.kind in "iu"


def _require_batches(splits: Splits, fixed: int | None) -> None:
    # At least two batches, because rankings are compared between two halves of the samples.
    if fixed is not None and fixed > 1 and len(splits.calibration) < 2 * fixed:
        raise DatasetError(
            f"the model takes batches of exactly {fixed} samples: set dataset.calibration_size to "
            f"{2 * fixed} or more (it is {len(splits.calibration)}), or export the model with a "
            "free batch dimension."
        )
