"""From the keywords of a Python call to the words of a command line, plus objects."""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seqto.config.build import Given, build_part
from seqto.config.complaints import known_choices
from seqto.config.compose import composed
from seqto.config.own_files import model_words, sample_words
from seqto.config.words import word
from seqto.errors import ConfigError, nearest
from seqto.figures.table import limited
from seqto.measuring.parts import READ
from seqto.metrics.function import FunctionMetric
from seqto.protocols import Device, Metric, Quantizer, Search, Sensitivity, Task, Tracker
from seqto.report.commands import root

_LIMITS = [f"max_{figure}" for figure in limited()]

KEYS = {
    "precisions": "precisions",
    "evaluations": "search.evaluations",
    "objectives": "objectives",
    **{name: f"constraint.{name}" for name in _LIMITS},
    "calibration_size": "dataset.calibration_size",
    "evaluation_size": "dataset.evaluation_size",
    "name": "model.name",
    **{name: f"{group}.{name}" for group, names in READ.items() for name in names},
}
"""Keywords, and the config key that each sets."""

GROUPS = ("preprocess", "device", "quantization", "sensitivity", "search", "task", "metric")
"""Keywords that choose from a config group by name, or give an object instead."""

_READ_KEYS = {f"{group}.{name}" for group, names in READ.items() for name in names}
"""Keys that count for objects as well: they are about the model, whoever loads it."""
_IN_MEMORY = "memory"
_ARGUMENTS = {"model": "a model", "dataset": "samples"}
_NAMED = {name for name in known_choices("model") if name not in ("local", _IN_MEMORY)}
"""Models by name: their configs say how images become inputs, and which data they need."""
_SAMPLES = (
    "give an array, a dict of arrays by input name, an iterable of samples, or the path of a "
    "folder of images or of a .npz file."
)
_PROTOCOLS: dict[str, type] = {
    "device": Device,
    "quantization": Quantizer,
    "sensitivity": Sensitivity,
    "search": Search,
    "task": Task,
    "metric": Metric,
}


@dataclass(frozen=True)
class Call:
    """What a call asks for: words of the command line, and objects in memory."""

    words: list[str] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict)
    """Objects given instead of names, by config group."""
    content: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further arguments of parts, by config group, that cannot be written as words."""

    def config(self) -> DictConfig:
        """Return the config that the words describe."""
        self._refuse_words_without_effect()
        return composed(self.words)

    def given(self, config: DictConfig, tracker: Tracker | None) -> Given:
        """Return the objects to use instead of what the config names."""
        filled = {
            group: build_part(config, group, **content) for group, content in self.content.items()
        }
        recorded = {} if tracker is None else {"tracking": tracker}
        return {**self.objects, **filled, **recorded}

    @property
    def is_typed(self) -> bool:
        """Whether the words alone describe the call, so that it could have been typed."""
        return not self.objects and not self.content

    def _refuse_words_without_effect(self) -> None:
        for text in self.words:
            group, choice = _split(text)
            if text.lstrip("+~").partition("=")[0] in _READ_KEYS:
                continue
            if group in self.objects:
                kind = type(self.objects[group]).__name__
                raise ConfigError(
                    f"{text} has no effect, as {group} is an object here: set it on your {kind}."
                )
            if group in self.content and choice not in ("", _IN_MEMORY):
                raise ConfigError(
                    f"{text} has no effect, as {_ARGUMENTS[group]} was handed over: leave out one."
                )


def _split(text: str) -> tuple[str, str]:
    """Return the group or key at the top of a word, and its choice if it makes one."""
    group, (key, _, value) = root(text), text.lstrip("+~").partition("=")
    return group, value if key == group else ""


def call_of(
    function: Callable[..., Any],
    model: Any,
    samples: Any,
    labels: Any,
    keywords: Mapping[str, Any],
    overrides: Sequence[str] | None,
    unknown: Mapping[str, Any],
) -> Call:
    """Return what the arguments of this function ask for; None means not given."""
    known = set(inspect.signature(function).parameters) - {"unknown"}
    limits = set(_LIMITS) if "max_accuracy_loss" in known else set()
    _refuse_unknown([name for name in unknown if name not in limits], known | limits)
    words = _words(overrides)
    call = Call()
    _take_model(call, model)
    _take_samples(call, samples, labels, words)
    _check_preprocess(call, keywords.get("preprocess"), words)
    for group in GROUPS:
        if (value := keywords.get(group)) is not None:
            _take_choice(call, group, value)
    # A limit of a figure that is new in the table is no named argument yet.
    for name, value in {**keywords, **unknown}.items():
        if name in KEYS and value is not None:
            call.words.append(word(KEYS[name], value))
    call.words.extend(words)
    return call


def _words(overrides: Any) -> list[str]:
    given = [] if overrides is None else overrides
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise ConfigError(
            f"overrides={overrides!r} has to be a list of words: ['sensitivity.samples=64', ...]."
        )
    return list(given)


def _take_model(call: Call, model: Any) -> None:
    if model is None:
        raise ConfigError(
            "the model is missing: give the path of an .onnx file, its bytes or an onnx.ModelProto."
        )
    if hasattr(model, "load") and hasattr(model, "name"):
        call.objects["model"] = model
    elif isinstance(model, str) and model in known_choices("model") and not Path(model).exists():
        call.words.append(word("model", model))
    elif isinstance(model, str | Path):
        call.words.extend(model_words(model))
    else:
        call.words.append(f"model={_IN_MEMORY}")
        call.content["model"] = {"content": model}


def _take_samples(call: Call, samples: Any, labels: Any, words: Sequence[str]) -> None:
    if samples is None:
        # A named model, or a word, brings a dataset along.
        chosen = any(root(each) in ("dataset", "model") for each in words)
        if not chosen and not any(_split(each)[1] in _NAMED for each in call.words):
            raise ConfigError(f"samples are missing: {_SAMPLES}")
    elif hasattr(samples, "load") and hasattr(samples, "chunk_size"):
        call.objects["dataset"] = samples
    elif isinstance(samples, str | Path):
        call.words.extend(sample_words(samples))
    elif _is_pair_of_arrays(samples):
        raise ConfigError(
            "samples is a pair of as many inputs as labels: write tune(model, inputs, labels=...)."
        )
    else:
        call.words.append(f"dataset={_IN_MEMORY}")
        call.content["dataset"] = {"samples": samples, "labels": labels}
        return
    if labels is not None:
        raise ConfigError("labels= belongs to arrays: a dataset, a folder or a file has its own.")


def _is_pair_of_arrays(samples: Any) -> bool:
    arrays = isinstance(samples, tuple) and all(hasattr(each, "__array__") for each in samples)
    return arrays and len(samples) == 2 and len({len(each) for each in samples}) == 1


def _check_preprocess(call: Call, given: Any, words: Sequence[str]) -> None:
    """Raise where images would be prepared by a guess, or where there are none to prepare."""
    if given is not None and "dataset" in {**call.content, **call.objects}:
        raise ConfigError("preprocess has no effect here: it is for folders of images.")
    images = "dataset=images" in call.words
    named = any(group == "model" and choice in _NAMED for group, choice in map(_split, call.words))
    said = given is not None or any(root(each) == "preprocess" for each in words)
    if images and not said and not named:
        raise ConfigError(
            "a folder of images needs preprocess=, which says how they become inputs: "
            f"{', '.join(known_choices('preprocess'))}. See seqto --help preprocess=imagenet."
        )


def _take_choice(call: Call, group: str, value: Any) -> None:
    if isinstance(value, str):
        call.words.append(word(group, value))
    elif group == "preprocess":
        choices = ", ".join(known_choices(group))
        raise ConfigError(f"preprocess={value!r} has to be a name: {choices}.")
    elif group == "metric" and callable(value) and not hasattr(value, "losses"):
        call.objects[group] = FunctionMetric(value)
    else:
        call.objects[group] = checked_part(value, _PROTOCOLS[group], group)


def checked_part(value: Any, protocol: type, group: str) -> Any:
    """Return an object of the user's own; raise where it is none of this kind."""
    article = f"{group} is no {protocol.__name__}"
    if isinstance(value, type):
        raise ConfigError(f"{article}: give an object of your class, {value.__name__}(...).")
    if missing := [name for name in _members(protocol) if not hasattr(value, name)]:
        raise ConfigError(
            f"{article}: your {type(value).__name__} has no {', '.join(missing)}. See "
            f"help(seqto.protocols.{protocol.__name__})."
        )
    return value


def _members(protocol: type) -> list[str]:
    """Return the attributes and methods that a protocol asks for."""
    own = [each for each in protocol.__mro__ if each.__module__.startswith("seqto.")]
    names = [name for each in own for name in (*each.__annotations__, *vars(each))]
    return sorted({name for name in names if not name.startswith("_")})


def _refuse_unknown(unknown: Sequence[str], known: Set[str]) -> None:
    for name in unknown:
        raise ConfigError(
            f"there is no keyword {name!r}{nearest(name, known)}. Keywords are "
            f"{', '.join(sorted(known))}; any other config key goes into overrides, such as "
            "overrides=['sensitivity.samples=64']."
        )
