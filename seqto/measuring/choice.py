"""Candidates chosen by hand, and the checks of such a choice."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seqto.errors import ConfigError, LayerError, nearest
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject, rank_layers
from seqto.protocols import Quantizer, SeveralSchemes
from seqto.types import INT8, Candidate, Layer, Trial, listed
from seqto.workspace import Workspace

_log = logging.getLogger(__name__)


def excluding(excluded: Any, subject: Subject) -> Candidate:
    """Return the candidate that leaves these layers in float32."""
    if isinstance(excluded, str) or not isinstance(excluded, Sequence):
        raise ConfigError(
            f"candidate.excluded={excluded} has to be a list of layer names, such as [conv1,fc]."
        )
    known = subject.layer_names
    return Candidate.excluding(known, _known(excluded, known, "candidate.excluded"))


def mixed(groups: Any, subject: Subject) -> Candidate:
    """Return the candidate with these layers in these precisions, and all others in int8.

    `groups` maps each precision to a list of layers.
    """
    if not isinstance(groups, Mapping):
        raise ConfigError(
            f"candidate.precisions={groups} has to name layers by precision, such as "
            "{float16:[conv1],int4:[fc]}."
        )
    known = subject.layer_names
    chosen = dict.fromkeys(known, INT8)
    seen: set[str] = set()
    for precision, given in groups.items():
        names = _known(_listed(given), known, "candidate.precisions")
        if twice := seen & set(names):
            raise ConfigError(f"candidate.precisions names {min(twice)!r} under two precisions.")
        seen |= set(names)
        chosen |= dict.fromkeys(names, str(precision))
    return Candidate.of(chosen)


def most_sensitive(count: Any, parts: Parts, subject: Subject, workspace: Workspace) -> Candidate:
    """Return the candidate that leaves the `count` most sensitive layers in float32."""
    known = subject.layer_names
    if not isinstance(count, int) or not 0 <= count <= len(known):
        raise ConfigError(
            f"candidate.top={count} has to be a whole number from 0 to {len(known)}, "
            "the number of quantizable layers."
        )
    ranking = rank_layers(parts, subject, workspace)
    units = {each.layer.unit for each in ranking[:count]}
    # Layers that run as one with them need the same precision.
    return Candidate.excluding(
        known, [layer.name for layer in subject.layers if layer.unit in units]
    )


def same_as(trial: Trial, subject: Subject) -> Candidate:
    """Return the trial's candidate; raise if it belongs to another model."""
    where = f"candidate.from_run={trial.id}"
    names, known = [name for name, _ in trial.candidate.precisions], subject.layer_names
    if sorted(names) != sorted(known):
        different = set(names) ^ set(known)
        raise ConfigError(
            f"{where} is a candidate of another model or quantization: {len(different)} layers "
            f"differ, {min(different)!r} among them. Give the model=, quantization= and other "
            "options of its study as well."
        )
    return trial.candidate


def checked(candidate: Candidate, scheme: str | None, parts: Parts, subject: Subject) -> Candidate:
    """Return the candidate in this scheme; raise if the quantizer cannot make it."""
    candidate = _in_scheme(candidate, scheme, parts.quantizer)
    _require_precisions(candidate, parts.quantizer)
    if apart := _apart(candidate, subject.layers):
        _log.warning(
            "%s runs these layers as one (or they share a weight), but the candidate gives them "
            "different precisions: %s.",
            *(parts.device.name, "; ".join(apart)),
        )
    return candidate


def _require_precisions(candidate: Candidate, quantizer: Quantizer) -> None:
    """Raise if a layer has a precision that the quantizer does not offer."""
    for layer, precision in candidate.precisions:
        if precision not in quantizer.precisions:
            raise ConfigError(
                f"the candidate has {layer!r} in {precision!r}"
                f"{nearest(precision, quantizer.precisions)}, which quantization={quantizer.name} "
                f"does not offer. Choose from {listed(quantizer.precisions)}."
            )


def _apart(candidate: Candidate, layers: Sequence[Layer]) -> list[str]:
    """Return a description of each group that runs as one but mixes precisions."""
    given, groups = dict(candidate.precisions), dict[str, list[str]]()
    for layer in layers:
        groups.setdefault(layer.unit, []).append(layer.name)
    return [
        ", ".join(f"{name} ({given[name]})" for name in names)
        for names in groups.values()
        if len({given[name] for name in names}) > 1
    ]


def _in_scheme(candidate: Candidate, scheme: str | None, quantizer: Quantizer) -> Candidate:
    """Return the candidate in this scheme, or in its own if it has one."""
    scheme = scheme or candidate.scheme
    if not scheme:
        return candidate
    known = list(quantizer.schemes) if isinstance(quantizer, SeveralSchemes) else []
    if scheme not in known:
        choices = f"Choose from {'; '.join(known)}." if known else "Only quantization=auto has any."
        raise ConfigError(f"there is no candidate.scheme={scheme!r}. {choices}")
    return replace(candidate, scheme=scheme)


def _known(given: Sequence[Any], known: Sequence[str], where: str) -> list[str]:
    """Return the layers' names as strings; raise if the model has no such layer."""
    # Hydra reads a name like 12 as a number.
    names = [str(name) for name in given]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LayerError(unknown, known, where)
    return names


def _listed(given: Any) -> Sequence[Any]:
    """Return a list of names, also for a single name without brackets."""
    return [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
