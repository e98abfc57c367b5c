"""From config to objects."""

import json
from dataclasses import dataclass
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqto.constraint import Constraint, Gate
from seqto.evaluate import Subject
from seqto.protocols import Tracker
from seqto.study import RANGES, StudySettings
from seqto.subject import Parts, prepare_subject
from seqto.workspace import Workspace

GROUPS = ("model", "dataset", "quantization", "sensitivity", "search", "metric", "device")


@dataclass(frozen=True)
class Context:
    """What the jobs of one study share in a process."""

    parts: Parts
    subject: Subject
    tracker: Tracker
    workspace: Workspace


_last: tuple[str, Context] | None = None


def build_context(config: DictConfig) -> Context:
    """Return what this config describes; the same again for the next job of the same study."""
    global _last
    key = json.dumps([plain_config(config), _plain(config, "tracking")], sort_keys=True)
    if _last is None or _last[0] != key:
        _last = key, _build(config)
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


def plain_config(config: DictConfig) -> dict[str, Any]:
    """Return what defines a study, resolved."""
    return {name: _plain(config, name) for name in (*GROUPS, "precisions", "constraint")}


def build_parts(config: DictConfig) -> Parts:
    """Return what the studies of this config are made of."""
    return Parts(
        **{
            _FIELDS.get(group, group): instantiate(config[group], _convert_="all")
            for group in GROUPS
        },
        settings=plain_config(config),
        precisions=tuple(config.precisions),
    )


def _build(config: DictConfig) -> Context:
    tracker = instantiate(config.tracking, _convert_="all")
    parts = build_parts(config)
    workspace = Workspace.default()
    # A job on another machine has not calibrated, but its study has.
    ranges = tracker.read_document(config.study.run, RANGES) if config.study.run else None
    return Context(parts, prepare_subject(parts, workspace, ranges), tracker, workspace)


_FIELDS = {"model": "source", "quantization": "quantizer"}


def _plain(config: DictConfig, group: str) -> Any:
    return OmegaConf.to_container(config[group], resolve=True, throw_on_missing=True)
