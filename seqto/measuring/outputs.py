"""A model's outputs for all samples on a device, and their file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from seqto.errors import NotFiniteError
from seqto.freeing import give_back
from seqto.measuring.archive import write_arrays
from seqto.phases import counted
from seqto.protocols import Device, Program
from seqto.types import Entry, Model, Observed, Outputs, Samples, together

_SHAPES = ":shapes"
"""Behind the name of an output in its file: the shapes of its entries, which are not all equal."""


class Sees(Protocol):
    """Is shown outputs as they come."""

    def see(self, start: int, entries: Sequence[Entry]) -> None:
        """Take the outputs of the samples from `start` on."""
        ...


def outputs_of(
    model: Model,
    samples: Samples,
    batch: int,
    device: Device,
    observed: Observed,
    what: str = "",
    watch: Sees | None = None,
) -> Outputs:
    """Return the model's outputs for all samples on the device; `what` is said with their count."""
    program, names = device.load(model), _names(model)
    # The program has its weights. Where nobody else needs the model, they are held once only.
    del model
    give_back()
    try:
        return _run_all(program, names, samples, batch, observed, what, watch)
    finally:
        program.close()


def run_all(
    program: Program,
    model: Model,
    samples: Samples,
    batch: int,
    observed: Observed,
    what: str = "",
    watch: Sees | None = None,
) -> Outputs:
    """Return the outputs of a loaded model for all samples, run in batches; all are finite.

    A `watch` sees them as they come, and may raise.
    """
    return _run_all(program, _names(model), samples, batch, observed, what, watch)


def _run_all(
    program: Program,
    names: Sequence[str],
    samples: Samples,
    batch: int,
    observed: Observed,
    what: str,
    watch: Sees | None,
) -> Outputs:
    entries = _entries(program, names, samples, batch, observed, watch)
    outputs = together(counted(what, entries, len(samples)) if what else entries, len(samples))
    if names := _not_finite(outputs):
        raise NotFiniteError(
            f"the model's output {names[0]!r} is not finite: it has NaN or infinite values"
        )
    return outputs


def is_finite(outputs: Outputs) -> bool:
    """Tell whether no output has NaN or infinite values."""
    return not _not_finite(outputs)


def save_outputs(outputs: Outputs, path: Path) -> None:
    """Write outputs to a .npz file."""
    arrays: dict[str, np.ndarray] = {}
    for name, entries in outputs.items():
        if isinstance(entries, np.ndarray):
            arrays[name] = entries
        else:
            arrays[name] = np.concatenate([each.ravel() for each in entries])
            # Entries may also differ in their number of axes.
            ranks = np.array([each.ndim for each in entries])
            shapes = np.concatenate([np.array(each.shape, np.int64) for each in entries])
            arrays[name + _SHAPES] = np.concatenate([ranks, shapes])
    with path.open("wb") as file:
        write_arrays(file, arrays, compressed=False)


def load_outputs(path: Path, samples: int) -> Outputs:
    """Return the outputs of this many samples from a file of `save_outputs`."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return {
        name: _apart(array, arrays[name + _SHAPES], samples) if name + _SHAPES in arrays else array
        for name, array in arrays.items()
        if not name.endswith(_SHAPES)
    }


def _apart(values: np.ndarray, layout: np.ndarray, samples: int) -> tuple[np.ndarray, ...]:
    """Return the entries whose values and shapes were stored one after another."""
    ranks, dims = layout[:samples], layout[samples:]
    shapes = [tuple(map(int, each)) for each in np.split(dims, np.cumsum(ranks)[:-1])]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(values, ends[:-1])
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))


def _names(model: Model) -> list[str]:
    return [each.name for each in model.proto.graph.output]


def _entries(
    program: Program,
    names: Sequence[str],
    samples: Samples,
    batch: int,
    observed: Observed,
    watch: Sees | None,
) -> Iterator[Entry]:
    start = 0
    for inputs in samples.batches(batch):
        made: Entry = dict(zip(names, program.run(inputs), strict=True))
        entries = observed.entries(made, samples, start, batch)
        if watch is not None:
            watch.see(start, entries)
        yield from entries
        start += samples.fixed_batch or batch


def _not_finite(outputs: Outputs) -> list[str]:
    return [
        name
        for name, entries in outputs.items()
        if not all(each.dtype.kind != "f" or np.isfinite(each).all() for each in entries)
    ]
