"""How metrics and tasks read the outputs of a model."""

from collections.abc import Sequence

import numpy as np

from seqto.errors import ModelError
from seqto.types import Outputs

Entries = Sequence[np.ndarray] | np.ndarray
"""One output: an array `[samples, ...]`, or one array per sample."""


def only_output(outputs: Outputs) -> tuple[str, Entries]:
    """Return the name and the entries of the single output."""
    if len(outputs) != 1:
        raise ModelError(
            f"the model has {len(outputs)} outputs ({in_words(outputs)}), but this task or metric "
            f"takes one: choose it with 'model.outputs=[{next(iter(outputs), '')}]'."
        )
    return next(iter(outputs.items()))


def stacked(name: str, entries: Entries) -> np.ndarray:
    """Return an output as one array, `[samples, ...]`."""
    if isinstance(entries, np.ndarray):
        return entries
    shapes = {np.shape(each) for each in entries}
    if len(shapes) != 1:
        raise misfit(
            name,
            entries,
            "this task or metric expects the same shape for every sample. Use task=detection, "
            "task=tokens or task=regression, or choose another output with 'model.outputs=[...]'",
        )
    return np.stack(list(entries))


def misfit(name: str, entries: Entries, words: str) -> ModelError:
    """Return the error of an output that does not fit; `words` say who expects what instead."""
    return ModelError(f"output {described(name, entries)}, but {words}.")


def described(name: str, entries: Entries) -> str:
    """Return an output's name and shape per sample; two shapes if they vary."""
    shapes = list(dict.fromkeys(str(list(np.shape(each))) for each in entries))
    more = " or others" if len(shapes) > 2 else ""
    return f"{name!r} has the shape {' or '.join(shapes[:2])}{more} per sample"


def in_words(outputs: Outputs) -> str:
    """Return the names of outputs with their shapes per sample."""
    return ", ".join(f"{name!r} {list(np.shape(each[0]))}" for name, each in outputs.items())
