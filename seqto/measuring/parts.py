"""What a study is made of."""

from dataclasses import dataclass, field
from typing import Any

from seqto.errors import ConfigError, nearest
from seqto.identity import identity, settings
from seqto.protocols import (
    Dataset,
    DecodesWeights,
    Device,
    GuessedTask,
    Metric,
    ModelSource,
    Quantizer,
    Search,
    Sensitivity,
    Task,
)
from seqto.types import (
    CODED,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    Reading,
    expanded,
    family,
    listed,
)

GROUPS = {
    "model": "source",
    "dataset": "dataset",
    "quantization": "quantizer",
    "sensitivity": "sensitivity",
    "search": "search",
    "task": "task",
    "metric": "metric",
    "device": "device",
}
"""Each config group, and the field of `Parts` that it fills."""

READ = {"model": ("outputs", "batch_axes"), "dataset": ("constants",)}
"""The keys that every choice of a group has, and the fields of `Reading` that they fill."""


@dataclass(frozen=True)
class Parts:
    """What a study is made of."""

    source: ModelSource
    dataset: Dataset
    quantizer: Quantizer
    sensitivity: Sensitivity
    search: Search
    device: Device
    task: Task | GuessedTask
    metric: Metric | None = None
    """The user's own; by default the task's."""
    precisions: tuple[str, ...] = (INT8, FLOAT32)
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        """Refuse precisions that the quantizer does not know, or that leave no choice."""
        known = self.quantizer.precisions
        for name in self.precisions:
            if not expanded([name], known):
                raise ConfigError(
                    f"precisions has {name!r}{nearest(name, {*map(family, known)})}, which "
                    f"quantization={self.quantizer.name} does not offer. "
                    f"Choose from {listed(known)}."
                )
        if FLOAT32 not in self.precisions or len(set(self.precisions)) < 2:
            raise ConfigError("precisions needs float32 and at least one other to choose from.")

    @property
    def choices(self) -> tuple[str, ...]:
        """The precisions that a layer may have, with each step of coded weights."""
        return expanded(self.precisions, self.quantizer.precisions)

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes a study of these parts from any other."""
        parts = {group: identity(getattr(self, name)) for group, name in GROUPS.items()}
        return {**parts, "precisions": list(self.precisions), "reading": identity(self.reading)}

    @property
    def settings(self) -> dict[str, Any]:
        """All fields of the parts, by config group, for the record."""
        parts = {group: settings(getattr(self, name)) for group, name in GROUPS.items()}
        reading = settings(self.reading)
        for group, names in READ.items():
            parts[group] |= {name: reading[name] for name in names}
        return {**parts, "precisions": list(self.precisions)}

    @property
    def registered_name(self) -> str:
        """The name under which the models of such a study are registered."""
        return registered_name(self.source, self.device, self.quantizer)


def usual_precisions(quantizer: Quantizer, device: Device) -> tuple[str, ...]:
    """Return the precisions to choose from if nobody says: those that the device runs well.

    Where coded weights can be decoded, int4 would only be larger at the same loss.
    """
    decodes = isinstance(device, DecodesWeights) and device.decodes_weights
    small = CODED if decodes and expanded([CODED], quantizer.precisions) else INT4
    wanted = (small, INT8, FLOAT16, FLOAT32)
    return tuple(each for each in wanted if expanded([each], quantizer.precisions))


def registered_name(source: ModelSource, device: Device, quantizer: Quantizer) -> str:
    """Return the name under which the models of such studies are registered."""
    name = f"seqto-{source.name}-{device.name}-{quantizer.name}"
    # MLflow's registry refuses both characters, and only after all candidates are measured.
    return name.replace("/", "-").replace(":", "-")
