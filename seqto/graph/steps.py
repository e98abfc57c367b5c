"""A part of a model on a device."""

from seqto.graph.segments import Cut
from seqto.protocols import Device
from seqto.types import Arrays, Model


class Step:
    """Goes from the tensors at one cut to those at `end`, by the part of a model between them."""

    def __init__(self, between: Model, end: Cut, device: Device) -> None:
        self.end = end
        graph = between.proto.graph
        self._wanted = [each.name for each in graph.input]
        self._made = [each.name for each in graph.output]
        # Where all tensors are there already, nothing is to be run.
        self._program = device.load(between) if self._made else None

    def run(self, tensors: Arrays) -> Arrays:
        """Return the tensors of the second cut for one batch."""
        made: Arrays = {}
        if self._program is not None:
            outputs = self._program.run({name: tensors[name] for name in self._wanted})
            made = dict(zip(self._made, outputs, strict=True))
        return {name: made[name] if name in made else tensors[name] for name in self.end.tensors}

    def close(self) -> None:
        """Let the session go."""
        if self._program is not None:
            self._program.close()
