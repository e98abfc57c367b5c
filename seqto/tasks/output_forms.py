"""The shapes of a model's outputs, by which tasks find the one they need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.errors import ConfigError, ModelError, nearest
from seqto.types import Outputs

VARIES = -1
"""The length of an axis that is not the same for all samples."""

Sample = Mapping[str, np.ndarray]
"""The outputs of one sample by name."""


@dataclass(frozen=True)
class Form:
    """What the entries of an output have in common."""

    name: str
    shape: tuple[int, ...]
    is_integer: bool

    def __str__(self) -> str:
        sizes = ", ".join("?" if size == VARIES else str(size) for size in self.shape)
        return f"{self.name!r} has the shape [{sizes}]"


def forms_of(outputs: Outputs) -> list[Form]:
    """Return the forms of all outputs."""
    return [_form(name, entries) for name, entries in outputs.items()]


def listed(forms: Sequence[Form]) -> str:
    """Return the outputs with their shapes, as error messages name them."""
    return ", ".join(map(str, forms)) or "none"


def samples_of(outputs: Outputs) -> Iterator[Sample]:
    """Yield the outputs of each sample."""
    for index in range(sample_count(outputs)):
        yield {name: plain(entries[index]) for name, entries in outputs.items()}


def sample_count(outputs: Outputs) -> int:
    """Return for how many samples there are outputs."""
    return min(map(len, outputs.values()), default=0)


def plain(entry: np.ndarray) -> np.ndarray:
    """Return an entry without axes of length 1, as long as it has more than two axes."""
    entry = np.asarray(entry)
    while entry.ndim > 2 and 1 in entry.shape:
        entry = entry.squeeze(axis=entry.shape.index(1))
    return entry


def the_one(
    role: str, key: str, chosen: str | None, fitting: Sequence[Form], forms: Sequence[Form]
) -> Form:
    """Return the output with this role: the one that users named, or the only one that fits."""
    if chosen is not None:
        return named(chosen, key, forms)
    if len(fitting) == 1:
        return fitting[0]
    if len(forms) == 1:
        raise ModelError(
            f"the model's only output {forms[0]}, which cannot hold the {role}: choose another "
            "task=, or what task= says of the output."
        )
    raise ModelError(
        f"the model has {len(forms)} outputs, {listed(forms)}: which one holds the {role} is not "
        "clear. "
        f"Name it with {key}=<output>, leave the others out with "
        f"model.outputs=[{(fitting or forms)[0].name}], or choose another task=."
    )


def named(chosen: str, key: str, forms: Sequence[Form]) -> Form:
    """Return the output of this name."""
    for form in forms:
        if form.name == chosen:
            return form
    raise ConfigError(
        f"{key}={chosen} names no output{nearest(chosen, [each.name for each in forms])}: the "
        f"model has the outputs {', '.join(each.name for each in forms)}."
    )


def _form(name: str, entries: Sequence[np.ndarray] | np.ndarray) -> Form:
    shapes = [plain(entry).shape for entry in entries]
    # An output without entries for a sample may have lost its other axes.
    telling = {shape for shape in shapes if 0 not in shape} or set(shapes)
    axes = max(map(len, telling), default=0)
    # What has another number of axes for each sample is nothing that a task looks for.
    telling = {shape if len(shape) == axes else (VARIES,) * axes for shape in telling}
    shape = tuple(
        sizes[0] if len(set(sizes)) == 1 else VARIES for sizes in zip(*telling, strict=True)
    )
    return Form(name, shape, all(np.asarray(entry).dtype.kind in "iub" for entry in entries))
