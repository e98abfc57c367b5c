"""Every real and exported model with its inputs and what its outputs mean."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from exported_models import (
    decoder,
    detector,
    patterns,
    prompts,
    recurrent,
    sentence_transformer,
    sentences,
    series,
    shapes,
    states,
    unet,
    vision_transformer,
)
from pypi_models import published
from sample_files import file_inputs
from sample_pictures import face_inputs, line_inputs, page_inputs, upright_inputs
from sample_sounds import music_inputs, voice_inputs

from seqto.types import Arrays, Model, Samples


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and the words of the command line that say how it is used.

    The first axis of `inputs` counts samples; `shared` are the inputs that are the same for each
    sample, as a session takes them for a batch of 1: states at their start, and constants.
    """

    name: str
    model: Callable[[], Model]
    inputs: Callable[[int], Arrays]
    words: Sequence[str]
    shared: Mapping[str, np.ndarray] = field(default_factory=dict)

    def samples(self, count: int) -> "SharedSamples":
        """Return so many samples, as quantizers take them."""
        ids = tuple(f"{self.name}-{index}" for index in range(count))
        return SharedSamples(self.inputs(count), ids, shared=self.shared)

    def feeds(self, count: int) -> list[dict[str, np.ndarray]]:
        """Return the inputs of each sample, as a session takes them."""
        return [dict(each) for each in self.samples(count).batches(1)]


@dataclass(frozen=True, eq=False)
class SharedSamples(Samples):
    """Samples that run one by one, with inputs that all of them share."""

    shared: Mapping[str, np.ndarray] = field(default_factory=dict)

    def batches(self, size: int) -> Iterator[Arrays]:
        """Yield the inputs of each sample."""
        for batch in super().batches(1):
            yield {**batch, **self.shared}


_SILERO = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}

PUBLISHED = (
    Case("magika", partial(published, "magika"), file_inputs, ["task=classification"]),
    Case("nudenet", partial(published, "nudenet"), face_inputs, ["task=detection"]),
    Case("ocr_cls", partial(published, "ocr_cls"), upright_inputs, ["task=classification"]),
    Case("ocr_det", partial(published, "ocr_det"), page_inputs, ["task=segmentation"]),
    Case("ocr_rec", partial(published, "ocr_rec"), line_inputs, ["task=text", "task.decoding=ctc"]),
    Case(
        "silero_16k",
        partial(published, "silero_16k"),
        voice_inputs,
        ["task=binary", "dataset.constants={sr: 16000}"],
        _SILERO,
    ),
    Case(
        "silero_flat",
        partial(published, "silero_flat"),
        voice_inputs,
        ["task=binary"],
        {"state": _SILERO["state"]},
    ),
    Case("basic_pitch", partial(published, "basic_pitch"), music_inputs, ["task=audio"]),
)

EXPORTED = (
    Case(
        "vision_transformer",
        vision_transformer,
        lambda count: patterns(count)[0],
        ["task=classification"],
    ),
    Case(
        "sentence_transformer",
        sentence_transformer,
        lambda count: sentences(count)[0],
        ["task=embedding"],
    ),
    Case("decoder", decoder, prompts, ["task=tokens"]),
    Case("unet", unet, lambda count: shapes(count)[0], ["task=segmentation"]),
    Case("detector", detector, lambda count: shapes(count)[0], ["task=detection"]),
    Case("recurrent", recurrent, lambda count: series(count)[0], ["task=regression"], states(1)),
)

CASES = (*PUBLISHED, *EXPORTED)
