"""What `seqto my.onnx` prints: what a model looks like, and which samples a study of it needs."""

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqto.config.build import build_parts
from seqto.config.complaints import known_choices
from seqto.config.compose import composed
from seqto.config.own_files import model_words, tokenizer_words
from seqto.datasets.feeding import load_splits
from seqto.errors import ModelError, SeqtoError
from seqto.figures.formats import in_bytes
from seqto.graph.coverage import Coverage, coverage
from seqto.graph.interface import interface_of
from seqto.graph.prepare import prepare
from seqto.graph.tensors import output_tensors
from seqto.measuring.meaning import find_task
from seqto.measuring.parts import Parts
from seqto.types import Interface, Layer, Model, Samples, Splits, TensorSpec

_FREE = 16
"""The length that dimensions get which the graph leaves free."""

_FEW = 8

_SECONDS = 20
"""How long the model may take for one sample of noise; what it means is then left open."""

_WIDTH = 71
"""Of a text beside its label, on 80 columns."""

_UNTOLD = "noise does not tell, samples will"


@dataclass(frozen=True)
class Looks:
    """What is known of a model without samples."""

    path: str
    size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    layers: tuple[Layer, ...]
    coverage: Coverage
    task: str
    """The task that its outputs suggest and the reason, or why they suggest none."""


def print_model(path: str) -> None:
    """Print what the model looks like, and what to type for a study of it."""
    for label, texts in described(looks_of(path)).items():
        for at, line in enumerate(each for text in texts for each in _wrapped(text)):
            print(f"{label + ':' if at == 0 else '':<8} {line}".rstrip())


def _wrapped(text: str) -> list[str]:
    """Return a text in lines; what is to be typed, which is indented, stays whole."""
    return [text] if text.startswith(" ") else textwrap.wrap(text, _WIDTH)


def looks_of(path: str) -> Looks:
    """Return what the graph of a model tells, and its outputs for noise."""
    parts = build_parts(composed([*model_words(path), f"device.seconds={_SECONDS}"]))
    original = parts.source.load()
    floating = prepare(original)
    model, layers = parts.quantizer.prepare(floating)
    interface = interface_of(floating)
    return Looks(
        path=path,
        size=original.size,
        inputs=interface.inputs,
        outputs=tuple(each.spec for each in output_tensors(floating)),
        layers=tuple(layers),
        coverage=coverage(model, layers),
        task=_task(parts, floating, interface),
    )


def _task(parts: Parts, model: Model, interface: Interface) -> str:
    """Return what the outputs for noise suggest."""
    try:
        task, reason = find_task(parts, model, interface, load_splits(_Noise(), interface))
    except ModelError as error:
        return _UNTOLD if error.__cause__ else str(error)
    except SeqtoError:
        return _UNTOLD
    return f"{task.name}, it seems: {reason}"


class _Noise:
    """Samples that most models survive: floats from 0 to 1, and the first two of all numbers."""

    name, chunk_size = "noise", 1

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return a few samples, one of them to evaluate on."""
        random = np.random.RandomState(0)
        arrays = {each.name: _drawn(each, random) for each in inputs}
        ids = tuple(map(str, range(_FEW)))
        return Splits(Samples(arrays, ids), Samples(arrays, ids).first(1), "")


def _drawn(spec: TensorSpec, random: np.random.RandomState) -> np.ndarray:
    shape = (_FEW, *(_FREE if dim is None else dim for dim in spec.shape[1:]))
    kind = np.dtype(spec.dtype).kind
    drawn = random.uniform(size=shape) if kind == "f" else random.randint(0, 2, shape)
    return drawn.astype(spec.dtype)


def described(looks: Looks) -> dict[str, list[str]]:
    """Return the lines to print, by their label."""
    kinds = Counter(layer.op_type for layer in looks.layers)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return {
        "model": [f"{looks.path}, {in_bytes(looks.size)}"],
        "inputs": list(map(str, looks.inputs)),
        "outputs": list(map(str, looks.outputs)),
        "layers": [f"{len(looks.layers)} ({listed})", str(looks.coverage)],
        "task": [looks.task],
        "samples": _wanted(looks.path, looks.inputs),
    }


def _wanted(path: str, inputs: Sequence[TensorSpec]) -> list[str]:
    """Return which samples the model needs, and what to type."""
    command = f"  seqto {shlex.quote(path)}"
    lines = []
    if len(inputs) == 1 and _takes_images(inputs[0]):
        choices = ", ".join(known_choices("preprocess"))
        lines += [
            "a folder of images like those that it will see, 400 or more (how they become inputs: "
            f"{choices}):",
            f"{command} photos/ preprocess=imagenet",
        ]
    if inputs and all(map(_takes_tokens, inputs)):
        beside = bool(tokenizer_words(path))
        lines += [
            "a file with one text per line, 400 or more"
            f"{' (tokenizer.json is beside the model)' if beside else ', and its tokenizer'}:",
            f"{command} lines.txt{'' if beside else ' dataset.tokenizer=tokenizer.json'}",
        ]
    arrays = ", ".join(f"{each.name!r}: ..." for each in inputs)
    return [
        *lines,
        f"{'or ' if lines else ''}an array per input, as the model takes it, with one entry per "
        "sample:",
        f"  numpy.savez('samples.npz', **{{{arrays}}})",
        f"{command} samples.npz",
    ]


def _takes_images(spec: TensorSpec) -> bool:
    return len(spec.shape) == 4 and bool({1, 3} & {spec.shape[1], spec.shape[3]})


def _takes_tokens(spec: TensorSpec) -> bool:
    return spec.dtype in ("int32", "int64") and len(spec.shape) == 2
