"""What a study is: its parts, its key, and what is recorded before it begins."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from seqto.identity import identity
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject
from seqto.pareto.lost import lost
from seqto.protocols import SearchesLatency, Tracker
from seqto.secrets import masked, masked_word
from seqto.study.settings import StudySettings
from seqto.types import (
    COMMAND,
    CONSTRAINT,
    INPUTS,
    OVERRIDES,
    SAMPLES,
    DataSplit,
    Model,
    StudyPlan,
    StudyRecord,
    content_key,
)
from seqto.workspace import Workspace


@dataclass(frozen=True)
class Study:
    """One model x device x quantization x dataset x search."""

    parts: Parts
    subject: Subject
    settings: StudySettings
    tracker: Tracker
    workspace: Workspace
    command: str = ""
    """The command line that started it, if any."""
    models: dict[str, Model] = field(default_factory=dict)
    """Models that were measured or built again and are needed once more, by their digests."""

    @property
    def name(self) -> str:
        """The name under which the study's models are registered."""
        return self.parts.registered_name

    @functools.cached_property
    def key(self) -> str:
        """The hash of the study's content: the same key means the same study."""
        facts = self.parts.device.describe()
        # With another runtime or other kernels, other things are measured.
        runtime = [facts.get("runtime", ""), facts.get("kernels", "")]
        contents = [self.subject.original_sha256, self.subject.fingerprint, *runtime]
        # What `task=auto` guessed.
        contents.append(identity(self.subject.task))
        # The constraint decides which candidates are evaluated, and so does a trade-off of latency.
        limits, goal = self.settings.constraint.limits(), self.settings.goal
        searched = goal.latency and isinstance(self.parts.search, SearchesLatency)
        wanted = [asdict(goal)] if searched else []
        return content_key([*contents, self.parts.identity, limits, *wanted])

    def registers(self, record: StudyRecord) -> bool:
        """Return whether to register models.

        None is if none meets the constraint, or if candidates are missing that might do better.
        """
        constraint = self.settings.constraint
        met = not constraint.limits() or constraint.best(record.trials) is not None
        return self.settings.register_models and met and not self.incomplete(record)

    def incomplete(self, record: StudyRecord) -> bool:
        """Return whether more candidates were lost than the answer may be given without."""
        total = len({each.candidate.key for each in record.trials})
        return len(lost(record.trials)) > self.settings.may_miss * total

    def plan(self, config: str, overrides: Sequence[str] | None) -> StudyPlan:
        """Return what is recorded before the study begins.

        `overrides` are the command line's words that gave this config, if there was one.
        """
        parts = self.parts
        tags = {
            "seqto.model": parts.source.name,
            "seqto.device": parts.device.name,
            "seqto.quantization": parts.quantizer.name,
            "seqto.search": parts.search.name,
            "seqto.dataset": parts.dataset.name,
            "seqto.data": self.subject.fingerprint,
            "seqto.task": self.subject.task.name,
            "seqto.metric": self.subject.metric.name,
            SAMPLES: str(len(self.subject.samples)),
            **{f"seqto.device.{name}": fact for name, fact in parts.device.describe().items()},
            **({COMMAND: masked(self.command)} if self.command else {}),
            **self._report_tags(overrides),
        }
        names = (parts.source.name, parts.device.name, parts.quantizer.name, parts.search.name)
        settings = {**parts.settings, "constraint": asdict(self.settings.constraint)}
        return StudyPlan(self.key, " ".join(names), tags, _flat(settings), config, self._data())

    def _data(self) -> tuple[DataSplit, ...]:
        settings = self.parts.settings["dataset"]
        source = str(settings.get("path") or settings["_target_"])
        splits = {"calibration": self.subject.calibration, "evaluation": self.subject.samples}
        return tuple(
            DataSplit(
                name=self.parts.dataset.name,
                context=context,
                digest=content_key([self.subject.fingerprint, context]),
                source=source,
                samples=len(samples),
            )
            for context, samples in splits.items()
        )

    def _report_tags(self, overrides: Sequence[str] | None) -> dict[str, str]:
        """Return what a report needs to know about the study besides its results."""
        limits = self.settings.constraint.limits()
        found = {
            OVERRIDES: None if overrides is None else json.dumps(list(map(masked_word, overrides))),
            CONSTRAINT: json.dumps(limits) if limits else None,
            INPUTS: json.dumps(
                [
                    [name, str(array.dtype), list(array.shape)]
                    for name, array in self.subject.example.items()
                ]
            ),
        }
        return {name: value for name, value in found.items() if value is not None}


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = "null" if value is None else str(value)
    return flat
