"""Models with the same beginning, run on the same samples: the common part runs once."""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seqto.errors import DeviceError
from seqto.freeing import give_back
from seqto.graph.segments import Cut, clean_cuts, common_nodes, in_order, part
from seqto.graph.steps import Step
from seqto.measuring.kept import Kept
from seqto.measuring.outputs import is_finite, outputs_of
from seqto.measuring.stopping import Dominated, Watch
from seqto.protocols import Device
from seqto.types import Arrays, Entry, Model, Observed, Outputs, Samples, together

_log = logging.getLogger(__name__)

MEMORY_LIMIT = 128 * 2**20
"""Bytes of activations to keep at a time; twice as many save nothing on EfficientNet-Lite0."""

_WORTH = 0.05
"""The smallest share of a model's layers that is worth keeping activations for.

More sessions cost next to nothing: on EfficientNet-Lite0 all parts together load as fast as the
whole model.
"""

_LAYERS = ("Conv", "ConvTranspose", "ConvInteger", "Gemm", "MatMul", "MatMulInteger")


class SharedRuns:
    """The outputs of many models, each started where it begins to differ from the one before.

    Each has one output. A model is cut where later models begin to differ from it, and the
    activations at the cuts are kept for all samples, up to `limit` bytes. Each later model starts
    from the last kept cut that it shares. Asking for the models in order is cheapest; any order
    gives the same outputs. `models` make them when they are needed, so that few are held at a time.
    """

    def __init__(
        self,
        models: Sequence[Callable[[], Model]],
        samples: Samples,
        batch: int,
        device: Device,
        observed: Observed,
        limit: int = MEMORY_LIMIT,
    ) -> None:
        self._models = models
        self._samples = samples
        self._batch = batch
        self._observed = observed
        self._device = device
        self._limit = limit
        self._routes: list[_Route] = []
        before: Model | None = None
        for make in models:
            model = in_order(make())
            common = common_nodes(before, model) if before is not None else 0
            self._routes.append(_Route.of(model, common))
            before = model
        self._kept: list[Kept] = []
        self._last = 0

    @property
    def kept_bytes(self) -> int:
        """How many bytes of activations are kept now."""
        return sum(each.size for each in self._kept)

    def outputs(self, index: int, watch: Watch | None = None) -> Outputs:
        """Return this model's outputs for all samples, bit-identical to `run_all`.

        An error of loading or running this model is raised; the other models stay usable. A `watch`
        may stop the model.
        """
        self._go_to(index)
        start = self._start(index)
        cuts = self._plan(index, start)
        if start is None and not cuts:
            return self._whole(index, watch)
        try:
            outputs = self._in_parts(index, start, cuts, watch)
        except (DeviceError, OSError) as error:
            _log.info("A candidate runs as a whole because a part of it fails: %s", error)
            # The whole model may still run, or it fails with its own error.
            return self._whole(index, watch)
        return outputs if is_finite(outputs) else self._whole(index, watch)

    def _go_to(self, index: int) -> None:
        """Drop the activations that the model at `index` does not share."""
        between = self._routes[self._last + 1 : index + 1]
        common = min((each.common for each in between), default=0)
        self._kept = [each for each in self._kept if each.cut.position <= common]
        self._last = index

    def _start(self, index: int) -> Kept | None:
        """Return the last kept cut from which this model can start."""
        cuts = self._routes[index].layers
        return next((each for each in reversed(self._kept) if each.cut in cuts), None)

    def _plan(self, index: int, start: Kept | None) -> list[Cut]:
        """Return where to cut this model, after its start, for the sake of later models."""
        route = self._routes[index]
        first = start.cut if start else route.first
        room = self._limit - self.kept_bytes
        last = route.layers[route.end] + 1
        chosen: list[Cut] = []
        reach = route.end.position + 1
        # Later models share ever shorter beginnings with this one.
        for later in self._routes[index + 1 :]:
            if later.common >= reach:
                continue
            reach = later.common
            fitting = [
                cut
                for cut, layers in route.layers.items()
                if first.position < cut.position <= reach
                and cut in later.layers
                and cut.sample_bytes * len(self._samples) <= room
                and route.layers[first] + route.worth <= layers < last
            ]
            if fitting:
                chosen.append(fitting[-1])
                room -= fitting[-1].sample_bytes * len(self._samples)
                last = route.layers[fitting[-1]]
        return chosen[::-1]

    def _whole(self, index: int, watch: Watch | None) -> Outputs:
        how = (self._samples, self._batch, self._device, self._observed)
        return outputs_of(self._models[index](), *how, watch=watch)

    def _in_parts(
        self, index: int, start: Kept | None, cuts: Sequence[Cut], watch: Watch | None
    ) -> Outputs:
        """Run the model from this start, keep the activations at the cuts, return its outputs."""
        route, model = self._routes[index], in_order(self._models[index]())
        places = dict.fromkeys([start.cut if start else route.first, *cuts, route.end])
        new = {cut: Kept(cut) for cut in cuts}
        with contextlib.ExitStack() as stack:
            steps = []
            for here, there in itertools.pairwise(places):
                steps.append(Step(part(model, here, there), there, self._device))
                stack.callback(steps[-1].close)
            # The sessions have its weights. Making its parts left as much behind.
            del model
            give_back()
            outputs = self._run(steps, new, self._begun(start, watch), watch)
        self._kept += new.values()
        if isinstance(outputs, Dominated):
            raise outputs
        entries = [each for number in sorted(outputs) for each in outputs[number]]
        return together(entries, len(entries))

    def _run(
        self,
        steps: Sequence[Step],
        new: dict[Cut, Kept],
        begun: Iterator[tuple[int, Arrays]],
        watch: Watch | None,
    ) -> "dict[int, Sequence[Entry]] | Dominated":
        """Return the entries of each batch, or why the model was stopped; keep what is new.

        Of a stopped model, what later models begin with is still run.
        """
        outputs: dict[int, Sequence[Entry]] = {}
        stopped: Dominated | None = None
        for number, tensors in begun:
            if stopped is not None:
                last = max((cut.position for cut in new), default=-1)
                steps = [each for each in steps if each.end.position <= last]
                if not steps:
                    break
            for step in steps:
                tensors = step.run(tensors)
                if step.end in new:
                    new[step.end].add(number, tensors)
                    self._let_go(new)
            if stopped is not None:
                continue
            at = number * self._size
            outputs[number] = self._observed.entries(tensors, self._samples, at, self._batch)
            try:
                if watch is not None:
                    watch.see(at, outputs[number])
            except Dominated as dominated:
                stopped = dominated
        return stopped or outputs

    @property
    def _size(self) -> int:
        """How many samples a batch has."""
        return self._samples.fixed_batch or self._batch

    def _begun(self, start: Kept | None, watch: Watch | None) -> Iterator[tuple[int, Arrays]]:
        """Yield the number of each batch with the tensors to start from.

        They come in the order of the watch: those that are likely lost come first.
        """
        numbers = list(range(-(-len(self._samples) // self._size)))
        if watch is not None:
            numbers = [*dict.fromkeys(sample // self._size for sample in watch.order)]
        if start is None:
            yield from zip(numbers, self._samples.batches(self._batch, numbers), strict=True)
        else:
            yield from ((number, start.batch(number)) for number in numbers)

    def _let_go(self, new: dict[Cut, Kept]) -> None:
        """Drop the earliest new activations while everything together exceeds the limit."""
        while self.kept_bytes + sum(each.size for each in new.values()) > self._limit:
            del new[next(iter(new))]


@dataclass(frozen=True, eq=False)
class _Route:
    """A model's possible cuts in order, with the number of layers before each.

    `common` is how many first nodes are the same as in the model before.
    """

    layers: Mapping[Cut, int]
    common: int

    @classmethod
    def of(cls, model: Model, common: int) -> "_Route":
        """Return the route of a model of `in_order`."""
        nodes = model.proto.graph.node
        before = [0, *itertools.accumulate(node.op_type in _LAYERS for node in nodes)]
        return cls({cut: before[cut.position] for cut in clean_cuts(model)}, common)

    @property
    def first(self) -> Cut:
        """The place before all nodes."""
        return next(iter(self.layers))

    @property
    def end(self) -> Cut:
        """The place after all nodes."""
        return list(self.layers)[-1]

    @property
    def worth(self) -> float:
        """The fewest layers that are worth keeping activations for."""
        return max(self.layers[self.end] * _WORTH, 1)
