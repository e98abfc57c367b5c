"""From the keywords of a Python call to the words of a command line, plus objects."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seqto.config.build import Given, build_part
from seqto.config.complaints import known_choices
from seqto.config.compose import composed
from seqto.config.words import word
from seqto.errors import ConfigError, nearest
from seqto.figures.table import limited
from seqto.metrics.function import FunctionMetric
from seqto.protocols import Tracker

KEYS = {
    "precisions": "precisions",
    "evaluations": "search.evaluations",
    "objectives": "objectives",
    **{f"max_{figure}": f"constraint.max_{figure}" for figure in limited()},
    "calibration_size": "dataset.calibration_size",
    "evaluation_size": "dataset.evaluation_size",
    "name": "model.name",
}
"""Keywords, and the config key that each sets."""

GROUPS = ("preprocess", "device", "quantization", "sensitivity", "search", "metric")
"""Keywords that choose from a config group by name, or give an object instead."""

_IN_MEMORY = "memory"


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
            group = re.split(r"[.=@]", text.lstrip("+~"), maxsplit=1)[0]
            if group in self.objects:
                kind = type(self.objects[group]).__name__
                raise ConfigError(
                    f"{text} has no effect, as {group} is an object here: set it on your {kind}."
                )


def call_of(
    model: Any,
    samples: Any,
    labels: Any,
    keywords: Mapping[str, Any],
    overrides: Sequence[str],
    unknown: Mapping[str, Any],
) -> Call:
    """Return what these arguments ask for; None stands for what was not given."""
    # A limit of a figure that is new in the table is no named argument yet.
    keywords = {**keywords, **{name: value for name, value in unknown.items() if name in KEYS}}
    _refuse_unknown([name for name in unknown if name not in KEYS])
    call = Call()
    _take_model(call, model)
    _take_samples(call, samples, labels)
    for group in GROUPS:
        if (value := keywords.get(group)) is not None:
            _take_choice(call, group, value)
    for name, key in KEYS.items():
        if (value := keywords.get(name)) is not None:
            call.words.append(word(key, value))
    call.words.extend(overrides)
    return call


def _take_model(call: Call, model: Any) -> None:
    if hasattr(model, "load") and hasattr(model, "name"):
        call.objects["model"] = model
    elif isinstance(model, str) and model in known_choices("model") and not Path(model).exists():
        call.words.append(word("model", model))
    elif isinstance(model, str | Path):
        call.words.extend(["model=local", word("model.path", str(model))])
    else:
        call.words.append(f"model={_IN_MEMORY}")
        call.content["model"] = {"content": model}


def _take_samples(call: Call, samples: Any, labels: Any) -> None:
    if samples is None:
        # The overrides choose a dataset; the default is that of the embedded model.
        return
    if hasattr(samples, "load") and hasattr(samples, "chunk_size"):
        call.objects["dataset"] = samples
    elif isinstance(samples, str | Path):
        kind = "npz" if Path(samples).suffix == ".npz" else "images"
        call.words.extend([f"dataset={kind}", word("dataset.path", str(samples))])
    else:
        call.words.append(f"dataset={_IN_MEMORY}")
        call.content["dataset"] = {"samples": samples, "labels": labels}
        return
    if labels is not None:
        raise ConfigError("labels= belongs to arrays: a dataset, a folder or a file has its own.")


def _take_choice(call: Call, group: str, value: Any) -> None:
    if isinstance(value, str):
        call.words.append(word(group, value))
    elif group == "preprocess":
        choices = ", ".join(known_choices(group))
        raise ConfigError(f"preprocess={value!r} has to be a name: {choices}.")
    elif group == "metric" and callable(value) and not hasattr(value, "loss"):
        call.objects[group] = FunctionMetric(value)
    else:
        call.objects[group] = value


def _refuse_unknown(unknown: Sequence[str]) -> None:
    known = [*GROUPS, *KEYS, "labels", "overrides", "tracking", "progress"]
    for name in unknown:
        raise ConfigError(
            f"there is no keyword {name!r}{nearest(name, known)}. Keywords are "
            f"{', '.join(sorted(known))}; any other config key goes into overrides, such as "
            "overrides=['sensitivity.samples=64']."
        )
