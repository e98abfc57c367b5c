"""Which outputs of a model are compared, and how they are told apart by sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.errors import ModelError
from seqto.types.model_outputs import Outputs
from seqto.types.samples import Samples

Entry = Mapping[str, np.ndarray]
"""The compared outputs of one sample, by name."""


@dataclass(frozen=True)
class Observed:
    """The compared outputs, each with its batch axis.

    An output without a batch axis (None), such as boxes of all images in one list, belongs to one
    sample as a whole: such a model runs one sample at a time.
    """

    axes: Mapping[str, int | None]

    @property
    def one_by_one(self) -> bool:
        """Whether the model has to run one sample at a time."""
        return None in self.axes.values()

    @property
    def is_plain(self) -> bool:
        """Whether there is one output, with its samples first."""
        return list(self.axes.values()) == [0]

    def entries(self, made: Entry, samples: Samples, start: int, batch: int) -> list[Entry]:
        """Return the outputs of each sample of the batch that begins with sample `start`.

        They have no batch axis. Positions that only fill up a sequence (see `Samples.mask`) are
        left out of every output that has a row for each position.
        """
        counted = min(samples.fixed_batch or batch, len(samples) - start)
        rows = {
            name: self._rows(name, made[name], samples.fixed_batch or counted) for name in self.axes
        }
        found: list[Entry] = [
            {name: each[at] for name, each in rows.items()} for at in range(counted)
        ]
        if samples.mask is None:
            return found
        masks = samples.mask[start : start + counted]
        return [_trimmed(entry, mask) for entry, mask in zip(found, masks, strict=True)]

    def _rows(
        self, name: str, array: np.ndarray, samples: int
    ) -> Sequence[np.ndarray] | np.ndarray:
        axis = self.axes[name]
        if axis is None:
            return [array]
        if array.ndim <= axis or array.shape[axis] != samples:
            raise ModelError(
                f"the model's output {name!r} has the shape {list(array.shape)} for {samples} "
                f"sample(s), but axis {axis} is to count them: say which axis does, such as "
                f"'model.batch_axes={{{name}: 1}}', or null if none does."
            )
        return np.moveaxis(array, axis, 0)


def together(entries: Iterable[Entry], count: int) -> Outputs:
    """Return the outputs of `count` samples: one array where all entries have the same shape.

    It is filled as the entries come, so that large outputs are not held twice.
    """
    found: dict[str, np.ndarray | list[np.ndarray]] = {}
    for at, entry in enumerate(entries):
        for name, value in entry.items():
            if at == 0:
                found[name] = np.empty((count, *value.shape), value.dtype)
            room = found[name]
            if isinstance(room, np.ndarray) and room.shape[1:] != value.shape:
                room = found[name] = list(room[:at])
            if isinstance(room, np.ndarray):
                room[at] = value
            else:
                room.append(value)
    return {
        name: each if isinstance(each, np.ndarray) else tuple(each) for name, each in found.items()
    }


def _trimmed(entry: Entry, counts: np.ndarray) -> Entry:
    return {
        name: array[counts] if array.ndim > 1 and len(array) == len(counts) else array
        for name, array in entry.items()
    }
