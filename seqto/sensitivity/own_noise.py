"""The noise that each layer adds by itself: the layer quantized, on the float model's inputs.

All layers of a fully quantized model are run at once, each on what the float model gives it. So no
layer inherits the noise of those before it, and a precision takes one run of the model.
"""

from collections.abc import Sequence

import numpy as np

from seqto.graph.inner import with_inputs
from seqto.protocols import Quantizer, previewed
from seqto.sensitivity.noise import Noise
from seqto.sensitivity.places import InnerTensors, places_of
from seqto.types import Candidate, Layer, Model, Ranges, Samples


def own_noises(
    model: Model,
    layers: Sequence[Layer],
    quantizer: Quantizer,
    ranges: Ranges,
    samples: Samples,
    count: int,
    precision: str,
) -> dict[str, Noise]:
    """Return the noise of each layer in this precision over the first `count` samples."""
    every = Candidate.of({layer.name: precision for layer in layers})
    quantized = previewed(quantizer, model, ranges, every)
    places = places_of(model, quantized, layers)
    given = {each.given.floating for each in places.values()}
    wanted = InnerTensors(model, given | {each.made.floating for each in places.values()})
    noises = {name: Noise() for name in places}
    apart: InnerTensors | None = None
    for inputs in samples.first_batches(min(count, len(samples))):
        floats = wanted.run(inputs)
        if apart is None:
            fed, renamed = with_inputs(quantized, {name: floats[name] for name in given})
            raw = {name: renamed.get(each.raw, each.raw) for name, each in places.items()}
            apart = InnerTensors(fed, set(raw.values()), folded=True)
        found = apart.run({**inputs, **{name: floats[name] for name in given}})
        for name, each in places.items():
            made = np.asarray(found[raw[name]])
            noises[name].add(each.bounded(floats[each.made.floating]), each.bounded(made))
    return noises
