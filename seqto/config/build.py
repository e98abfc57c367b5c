"""From config to objects."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from seqto.measuring.learned import from_document
from seqto.measuring.parts import GROUPS, READ, Parts, usual_precisions
from seqto.measuring.provenance import (
    PROVENANCE,
    check_provenance,
    check_timed_alike,
    provenance_of,
)
from seqto.measuring.subject import Subject, prepare_subject
from seqto.pareto.limits import Constraint, Gate
from seqto.protocols import Device, Fetched, ModelSource, Quantizer, Served, Tracker
from seqto.study.explore import LEARNED, RANGES
from seqto.study.settings import StudySettings
from seqto.types import Reading
from seqto.workspace import Workspace

Given = Mapping[str, Any]
"""Objects to use instead of what the config names, by config group."""


@dataclass(frozen=True)
class Context:
    """What all candidates of a study share within a process."""

    parts: Parts
    subject: Subject
    tracker: Tracker
    workspace: Workspace


_last: tuple[str, Context] | None = None


def build_context(config: DictConfig, given: Given | None = None) -> Context:
    """Build what this config describes; a job uses what its study calibrated and learned."""
    tracker = build_tracker(config, given)
    parts = build_parts(config, given)
    workspace = Workspace.default()
    # A job on another machine need not calibrate again, and would learn something else.
    ranges, learned = (
        tracker.read_document(config.study.run, name) if config.study.run else None
        for name in (RANGES, LEARNED)
    )
    known = None if learned is None else from_document(learned)
    subject = prepare_subject(parts, workspace, ranges, known)
    _check_job(config, parts, subject, tracker)
    return Context(parts, subject, tracker, workspace)


def _check_job(config: DictConfig, parts: Parts, subject: Subject, tracker: Tracker) -> None:
    """Raise where a job would measure something else than its study."""
    recorded = tracker.read_document(config.study.run, PROVENANCE) if config.study.run else None
    if recorded is not None:
        check_provenance(recorded, provenance_of(parts, subject))
        check_timed_alike(recorded, parts.device, build_settings(config, 1).times)


def context_of_job(config: DictConfig) -> Context:
    """Return the context of a study's job; the next job in this process reuses it."""
    global _last
    keys = (*GROUPS, "precisions", "constraint", "tracking")
    key = json.dumps({name: _plain(config, name) for name in keys}, sort_keys=True)
    if _last is None or _last[0] != key:
        _last = key, build_context(config)
    return _last[1]


def build_settings(config: DictConfig, batch: int) -> StudySettings:
    """Return the study's settings; `batch` is the default where the config has null."""
    study = _plain(config, "study")
    del study["run"], study["assignments"]
    return StudySettings(
        objectives=list(config.objectives),
        recommend=config.recommend,
        constraint=Constraint(**_plain(config, "constraint")),
        gate=Gate(**_plain(config, "gate")),
        **{**study, "batch": study["batch"] or batch},
    )


def build_parts(config: DictConfig, given: Given | None = None) -> Parts:
    """Return what the studies of this config are made of."""
    built = {group: build_part(config, group, given) for group in ("quantization", "device")}
    config = _with_precisions(config, built["quantization"], built["device"])
    given = {**(given or {}), **built}
    return Parts(
        **{name: build_part(config, group, given) for group, name in GROUPS.items()},
        precisions=tuple(config.precisions),
        reading=build_reading(config),
    )


def _with_precisions(config: DictConfig, quantizer: Quantizer, device: Device) -> DictConfig:
    """Return the config with the precisions that suit the device, if it names none."""
    if config.precisions is not None:
        return config
    # Parts that refer to the precisions have to get the same ones.
    config = copy.deepcopy(config)
    config.precisions = list(usual_precisions(quantizer, device))
    return config


def build_reading(config: DictConfig) -> Reading:
    """Return what the config says about how the model is fed and read."""
    given: dict[str, Any] = {
        name: OmegaConf.to_container(each) if OmegaConf.is_config(each) else each
        for group, names in READ.items()
        for name in names
        if (each := config[group][name]) is not None
    }
    return Reading(**given)


def build_part(config: DictConfig, group: str, given: Given | None = None, **content: Any) -> Any:
    """Return the object of one config group: the given one, or what the config names.

    `content` holds arguments that a config cannot express.
    """
    if given is not None and group in given:
        return given[group]
    chosen = _own_keys(config, group)
    if not content:
        return instantiate(chosen, _convert_="all")
    # Not through Hydra, which would make configs of lists and dataclasses.
    return instantiate(chosen, _convert_="all", _partial_=True)(**content)


def _own_keys(config: DictConfig, group: str) -> DictConfig:
    """Return a group without the keys that say how the model is fed and read.

    So its class, which may be the user's, need not know them.
    """
    # A copy keeps its place in the config, to which its interpolations refer.
    own: DictConfig = copy.deepcopy(config[group])
    with open_dict(own):
        for name in READ.get(group, ()):
            own.pop(name, None)
    return own


def build_tracker(config: DictConfig, given: Given | None = None) -> Tracker:
    """Return where results are recorded."""
    tracker: Tracker = build_part(config, "tracking", given)
    return tracker


def contact_tracker(config: DictConfig, given: Given | None = None) -> None:
    """Raise if results go to a server that does not answer."""
    tracker = build_tracker(config, given)
    if isinstance(tracker, Served):
        tracker.check_answers()


def fetch_model(config: DictConfig, given: Given | None = None) -> None:
    """Fetch the model, unless it is local or embedded."""
    source: ModelSource = build_part(config, "model", given)
    if isinstance(source, Fetched):
        source.fetch()


def _plain(config: DictConfig, group: str) -> Any:
    chosen = config[group]
    if not OmegaConf.is_config(chosen):
        return chosen
    return OmegaConf.to_container(chosen, resolve=True, throw_on_missing=True)
