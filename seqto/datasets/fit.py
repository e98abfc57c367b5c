"""Whether a dataset's arrays fit a model's inputs."""

from collections.abc import Sequence

import numpy as np

from seqto.errors import DatasetError
from seqto.types import Arrays, TensorSpec

REMEDY = (
    "choose a dataset made for this model, e.g. dataset=images dataset.path=<folder> for one that "
    "takes images"
)


def check_fits(
    inputs: Arrays, specs: Sequence[TensorSpec], dataset_name: str, remedy: str = REMEDY
) -> None:
    """Raise DatasetError if the model cannot be fed with these arrays."""
    if set(inputs) != {spec.name for spec in specs}:
        wanted = ", ".join(map(str, specs)) or "nothing"
        given = ", ".join(map(repr, inputs))
        missing = [spec.name for spec in specs if spec.name not in inputs]
        if inputs and 0 < len(missing) < len(specs):
            remedy = f"give {' and '.join(map(repr, missing))}, too, one entry per sample"
        remedy = _or_constant(remedy, missing) if len(specs) > 1 else remedy
        raise _misfit(f"model wants {wanted}", dataset_name, given, remedy)
    for spec in specs:
        array = inputs[spec.name]
        if not fits(array, spec):
            if _has_shape(array, spec):
                remedy = f"prepare them as for the model, and cast them with astype({spec.dtype!r})"
            elif array.ndim == len(spec.shape) + 1:
                axes = ", ".join(f"{each.name}: null" for each in specs)
                remedy += f"; or say that no axis counts samples with 'model.batch_axes={{{axes}}}'"
            raise _misfit(f"model input {spec} does not fit", dataset_name, shown(array), remedy)


def single_input(specs: Sequence[TensorSpec], dataset_name: str) -> TensorSpec:
    """Return the only input of the model; raise DatasetError if it has more."""
    if len(specs) != 1:
        wanted = ", ".join(map(str, specs)) or "nothing"
        remedy = _or_constant(REMEDY, [spec.name for spec in specs[1:]])
        problem = f"model wants {len(specs)} inputs: {wanted}"
        raise _misfit(problem, dataset_name, "one array", remedy)
    return specs[0]


def _or_constant(remedy: str, missing: Sequence[str]) -> str:
    """Return a remedy, with how to fix the first missing input if it never changes."""
    if not missing:
        return remedy
    constants = f"'dataset.constants={{{missing[0]}: <value>}}'"
    return f"{remedy}; or fix an input that never changes with {constants}"


def as_wanted(arrays: Arrays, specs: Sequence[TensorSpec]) -> Arrays:
    """Cast the arrays to the inputs' types, if that changes no more than precision."""
    wanted = {spec.name: np.dtype(spec.dtype) for spec in specs}
    return {name: _cast(array, wanted.get(name)) for name, array in arrays.items()}


def _cast(array: np.ndarray, wanted: np.dtype | None) -> np.ndarray:
    if wanted is None or array.dtype == wanted:
        return array
    floats = array.dtype.kind == wanted.kind == "f"
    integers = array.dtype.kind in "iu" and wanted.kind in "iu" and array.size > 0
    if integers:
        limits = np.iinfo(wanted)
        integers = limits.min <= int(array.min()) and int(array.max()) <= limits.max
    return array.astype(wanted) if floats or integers else array


def fits(array: np.ndarray, spec: TensorSpec) -> bool:
    """Tell whether the array has the type, the rank and the fixed dimensions of the input."""
    return array.dtype.name == spec.dtype and _has_shape(array, spec)


def _has_shape(array: np.ndarray, spec: TensorSpec) -> bool:
    if array.ndim != len(spec.shape):
        return False
    # The first axis counts samples; the batch size is chosen elsewhere.
    pairs = zip(spec.shape[1:], array.shape[1:], strict=True)
    return all(wanted in (None, given) for wanted, given in pairs)


def shown(array: np.ndarray) -> str:
    """Return an array's type and shape in the format of a TensorSpec."""
    return f"{array.dtype.name}[{', '.join(['?', *map(str, array.shape[1:])])}]"


def _misfit(problem: str, dataset_name: str, given: str, remedy: str) -> DatasetError:
    return DatasetError(f"{problem}, dataset {dataset_name} gives {given}: {remedy}.")
