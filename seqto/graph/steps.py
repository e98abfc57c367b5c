"""A part of a model on a device."""

from seqto.graph.segments import Cut
from seqto.protocols import Device
from seqto.types import Arrays, Model


class Step:
    """Computes the tensors at `end` from those at an earlier cut, with the part between them."""

    def __init__(self, between: Model, end: Cut, device: Device) -> None:
        self.end = end
        graph = between.proto.graph
        self._wanted = [each.name for each in graph.input]
        self._made = [each.name for each in graph.output]
        # If all tensors exist already, there is nothing to run.
        self._program = device.load(between) if self._made else None

    def run(self, tensors: Arrays) -> Arrays:
        """Return the tensors at `end` for one batch."""
        made: Arrays = {}
        if self._program is not None:
            outputs = self._program.run({name: tensors[name] for name in self._wanted})
            made = dict(zip(self._made, outputs, strict=True))
        return {name: made[name] if name in made else tensors[name] for name in self.end.tensors}

    def close(self) -> None:
        """Release the session."""
        if self._program is not None:
            self._program.close()
