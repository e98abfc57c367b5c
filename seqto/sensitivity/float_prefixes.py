"""Cheap runs of many models that each differ from a float model in a few nodes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceError
from seqto.graph.segments import Cut, changed_part, changed_span, find_cuts, part
from seqto.graph.steps import Step
from seqto.types import Arrays, Entry, Model, Observed, Samples

_log = logging.getLogger(__name__)

MEMORY_LIMIT = 128 * 2**20
"""How many bytes of activations are kept at most."""

_SUFFIXES = 3
"""How many ends of the float model stay loaded: neighbouring layers share them."""

_ENDS = 12
"""In about how many places such ends begin: loading one takes as long as running a few samples."""


class SharedPrefixes:
    """Keeps the samples' activations in the float model, from which changed models continue.

    The nodes before the first changed node are not run again for each changed model, and the nodes
    after the last changed one run in sessions that all changed models share. Samples run one by
    one: some quantizations make the samples of a batch depend on each other.
    """

    def __init__(self, model: Model, samples: Samples, count: int, observed: Observed) -> None:
        self._model = model
        self._samples = samples
        self._observed = observed
        self._device = OnnxRuntimeDevice()
        inputs = list(samples.first_batches(count))
        cuts = find_cuts(model, list(observed.axes))
        self._cuts = [
            cut
            for cut in cuts
            # The inputs are in memory anyway, and outputs are not kept.
            if cut in (cuts[0], cuts[-1]) or cut.sample_bytes * len(inputs) <= MEMORY_LIMIT
        ]
        self._ends = [*self._cuts[:: -(-len(self._cuts) // _ENDS)], self._cuts[-1]]
        self._kept: dict[Cut, Sequence[Arrays]] = {self._cuts[0]: inputs}
        self._suffixes: dict[Cut, Step] = {}
        self._refused = False

    def reference(self) -> Iterator[Entry]:
        """Yield the float model's outputs for each sample."""
        first, last = self._cuts[0], self._cuts[-1]
        return self._or_whole(self._model, lambda: self._finish(first, self._step(first, last)))

    def outputs(self, changed: Model, after: int = 0) -> Iterator[Entry]:
        """Yield the changed model's outputs for each sample, computed when they are asked for.

        The first `after` samples are left out. If a part does not load or run, the whole model is
        run; its error is raised.
        """
        # A batch may have several samples.
        first, more = divmod(after, self._samples.fixed_batch or 1)
        made = self._or_whole(changed, lambda: self._in_parts(changed, first), first)
        return islice(made, more, None)

    def _or_whole(
        self, model: Model, parts: Callable[[], Iterator[Entry]], first: int = 0
    ) -> Iterator[Entry]:
        done = 0
        try:
            for output in parts():
                yield output
                done += 1
        except DeviceError as error:
            if not self._refused:
                _log.warning("Layers are ranked by whole models where a part fails: %s", error)
            self._refused = True
            yield from islice(self._whole(model, first), done, None)

    def _whole(self, model: Model, first: int = 0) -> Iterator[Entry]:
        program = self._device.load(model)
        names = [each.name for each in model.proto.graph.output]
        for number, inputs in islice(enumerate(self._kept[self._cuts[0]]), first, None):
            yield from self._entries(dict(zip(names, program.run(inputs), strict=True)), number)

    def _in_parts(self, changed: Model, first: int) -> Iterator[Entry]:
        span = changed_span(self._model, changed)
        start = [cut for cut in self._cuts if cut.position <= span.first][-1]
        end = next(cut for cut in self._ends if cut.position >= span.last)
        between = Step(changed_part(self._model, changed, start, end), end, self._device)
        return self._finish(start, between, self._suffix(end), first=first)

    def _finish(self, start: Cut, *steps: Step, first: int = 0) -> Iterator[Entry]:
        """Yield the outputs after these steps, for each sample from the first one on."""
        for number, given in islice(enumerate(self._activations(start)), first, None):
            tensors = given
            for step in steps:
                tensors = step.run(tensors)
            yield from self._entries(tensors, number)

    def _entries(self, made: Entry, number: int) -> Sequence[Entry]:
        """Return the outputs of each sample of the batch with this number."""
        start = number * (self._samples.fixed_batch or 1)
        return self._observed.entries(made, self._samples, start, 1)

    def _activations(self, cut: Cut) -> Sequence[Arrays]:
        """Return the float model's tensors at this cut, for each sample."""
        if cut not in self._kept:
            start = [each for each in self._cuts[: self._cuts.index(cut)] if each in self._kept][-1]
            step = self._step(start, cut)
            self._kept[cut] = [step.run(each) for each in self._kept[start]]
            self._forget(cut)
        return self._kept[cut]

    def _forget(self, newest: Cut) -> None:
        """Drop the largest activations until the limit is met."""
        count = len(self._kept[self._cuts[0]])
        total = sum(each.sample_bytes for each in self._kept) * count
        if total <= MEMORY_LIMIT:
            return
        for cut in sorted(self._kept, key=lambda each: -each.sample_bytes):
            if total > MEMORY_LIMIT and cut not in (self._cuts[0], newest):
                del self._kept[cut]
                total -= cut.sample_bytes * count

    def _suffix(self, cut: Cut) -> Step:
        """Return the float model from this cut to its end."""
        if cut not in self._suffixes:
            if len(self._suffixes) == _SUFFIXES:
                del self._suffixes[min(self._suffixes, key=lambda each: each.position)]
            self._suffixes[cut] = self._step(cut, self._cuts[-1])
        return self._suffixes[cut]

    def _step(self, start: Cut, end: Cut) -> Step:
        return Step(part(self._model, start, end), end, self._device)
