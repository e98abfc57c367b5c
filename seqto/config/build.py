"""From config to objects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqto.measuring.parts import GROUPS, Parts
from seqto.measuring.subject import Subject, prepare_subject
from seqto.pareto.limits import Constraint, Gate
from seqto.protocols import Fetched, ModelSource, Served, Tracker
from seqto.study.explore import RANGES
from seqto.study.settings import StudySettings
from seqto.workspace import Workspace

Given = Mapping[str, Any]
"""Objects that stand in for what the config names, by config group."""


@dataclass(frozen=True)
class Context:
    """What the candidates of one study share in a process."""

    parts: Parts
    subject: Subject
    tracker: Tracker
    workspace: Workspace


_last: tuple[str, Context] | None = None


def build_context(config: DictConfig, given: Given | None = None) -> Context:
    """Return what this config describes; nothing is calibrated where its study has done so."""
    tracker = build_tracker(config, given)
    parts = build_parts(config, given)
    workspace = Workspace.default()
    # A job on another machine has not calibrated, but its study has.
    ranges = tracker.read_document(config.study.run, RANGES) if config.study.run else None
    return Context(parts, prepare_subject(parts, workspace, ranges), tracker, workspace)


def context_of_job(config: DictConfig) -> Context:
    """Return what a study's job works with; the same again for the next job in this process."""
    global _last
    keys = (*GROUPS, "precisions", "constraint", "tracking")
    key = json.dumps({name: _plain(config, name) for name in keys}, sort_keys=True)
    if _last is None or _last[0] != key:
        _last = key, build_context(config)
    return _last[1]


def build_settings(config: DictConfig, batch: int) -> StudySettings:
    """Return the study's settings; `batch` is used where the config leaves it open."""
    study = _plain(config, "study")
    del study["run"], study["assignments"]
    return StudySettings(
        objectives=list(config.objectives),
        constraint=Constraint(**_plain(config, "constraint")),
        gate=Gate(**_plain(config, "gate")),
        **{**study, "batch": study["batch"] or batch},
    )


def build_parts(config: DictConfig, given: Given | None = None) -> Parts:
    """Return what the studies of this config are made of."""
    return Parts(
        **{name: build_part(config, group, given) for group, name in GROUPS.items()},
        precisions=tuple(config.precisions),
    )


def build_part(config: DictConfig, group: str, given: Given | None = None, **content: Any) -> Any:
    """Return the object of one config group: the one that was given, else what the config names.

    `content` are arguments of it that no config can hold.
    """
    if given is not None and group in given:
        return given[group]
    return instantiate(config[group], **content, _convert_="all")


def build_tracker(config: DictConfig, given: Given | None = None) -> Tracker:
    """Return where results are recorded."""
    tracker: Tracker = build_part(config, "tracking", given)
    return tracker


def contact_tracker(config: DictConfig, given: Given | None = None) -> None:
    """Raise where a server is to record the results, but does not answer."""
    tracker = build_tracker(config, given)
    if isinstance(tracker, Served):
        tracker.check_answers()


def fetch_model(config: DictConfig, given: Given | None = None) -> None:
    """Fetch the model where its source has to; a local or embedded one is there already."""
    source: ModelSource = build_part(config, "model", given)
    if isinstance(source, Fetched):
        source.fetch()


def _plain(config: DictConfig, group: str) -> Any:
    return OmegaConf.to_container(config[group], resolve=True, throw_on_missing=True)
