"""One candidate from config: as a study's job, or on its own."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seqto.cli.build import Context, build_context, build_settings
from seqto.cli.contact import contact_tracker
from seqto.cli.fetch import fetch_model
from seqto.cli.pointers import print_lines, stdout_console, where_to_look
from seqto.errors import ConfigError, LayerError, StudyError, nearest
from seqto.graph.files import save_model
from seqto.protocols import Quantizer, SeveralSchemes
from seqto.study import Assignment, run_trial
from seqto.subject import rank_layers
from seqto.types import INT8, Candidate, Layer, TrialState
from seqto.workers import Workers

CHOICES = ("excluded", "precisions", "top", "from_run")
"""The config keys that choose a candidate."""

_log = logging.getLogger(__name__)


def run_study_job(config: DictConfig) -> list[str]:
    """Measure the candidates that a study assigned to this job; return their trials' ids."""
    context = build_context(config)
    assignments = [
        Assignment(each.index, replace(_mixed(each.precisions, context), scheme=each.scheme))
        for each in config.study.assignments
    ]
    workers = Workers(context.parts, context.subject, context.tracker, 1)
    return list(workers.launch(config.study.run, assignments))


def run_single(config: DictConfig) -> None:
    """Measure one candidate, save its model, and say where."""
    from seqto.report.terminal import in_words

    # Wrong values are told before anything is fetched, also those that only a study uses.
    build_settings(config, 1)
    contact_tracker(config)
    fetch_model(config)
    context = build_context(config)
    candidate = chosen_candidate(config, context)
    run = run_trial(context.parts, context.subject, context.tracker, None, Assignment(0, candidate))
    trial = context.tracker.trial(run)
    if trial.state is not TrialState.COMPLETE:
        raise StudyError(f"the candidate failed: {trial.failure}")
    path = _save(candidate, context)
    console = stdout_console()
    offer = in_words(trial.metrics, context.subject.baseline, context.parts.metric.name)
    console.print(f"{candidate.in_words()}: {offer}", highlight=False)
    print_lines(console, {**where_to_look(context.tracker, run), "model": str(path)})


def chosen_candidate(config: DictConfig, context: Context) -> Candidate:
    """Return the candidate that `candidate.*` chooses; fully quantized if nothing does."""
    chosen = _chosen(config.candidate, context)
    candidate = _in_scheme(chosen, config.candidate.scheme, context.parts.quantizer)
    _require_precisions(candidate, context.parts.quantizer)
    if apart := _apart(candidate, context.subject.layers):
        _log.warning(
            "%s runs these layers as one (or they share a weight), but the candidate gives them "
            "different precisions: %s.",
            *(context.parts.device.name, "; ".join(apart)),
        )
    return candidate


def _require_precisions(candidate: Candidate, quantizer: Quantizer) -> None:
    """Raise where a layer is to have a precision that the quantizer does not offer."""
    for layer, precision in candidate.precisions:
        if precision not in quantizer.precisions:
            raise ConfigError(
                f"the candidate has {layer!r} in {precision!r}"
                f"{nearest(precision, quantizer.precisions)}, which quantization={quantizer.name} "
                f"does not offer. Choose from {', '.join(quantizer.precisions)}."
            )


def _apart(candidate: Candidate, layers: Sequence[Layer]) -> list[str]:
    """Return which groups of layers get different precisions, in words."""
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


def _chosen(choice: DictConfig, context: Context) -> Candidate:
    given = [name for name in CHOICES if choice[name] is not None]
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(f'candidate.{name}' for name in given)} exclude each other: give one."
        )
    if choice.from_run is not None:
        return _rebuilt(choice.from_run, context)
    if choice.top is not None:
        return _top(choice.top, context)
    if choice.precisions is not None:
        return _mixed(choice.precisions, context)
    return _excluding([] if choice.excluded is None else choice.excluded, context)


def _excluding(excluded: Any, context: Context) -> Candidate:
    if isinstance(excluded, str) or not isinstance(excluded, Sequence):
        raise ConfigError(
            f"candidate.excluded={excluded} has to be a list of layer names, such as [conv1,fc]."
        )
    known = context.subject.layer_names
    return Candidate.excluding(known, _known(excluded, known, "candidate.excluded"))


def _known(given: Sequence[Any], known: Sequence[str], where: str) -> list[str]:
    """Return the names of layers as text; raise where the model has no such layer."""
    # Hydra reads a name like 12 as a number.
    names = [str(name) for name in given]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LayerError(unknown, known, where)
    return names


def _mixed(groups: Any, context: Context) -> Candidate:
    if not isinstance(groups, Mapping):
        raise ConfigError(
            f"candidate.precisions={groups} has to name layers by precision, such as "
            "{float16:[conv1],int4:[fc]}."
        )
    known = context.subject.layer_names
    chosen = dict.fromkeys(known, INT8)
    seen: set[str] = set()
    for precision, given in groups.items():
        names = _known(_listed(given), known, "candidate.precisions")
        if twice := seen & set(names):
            raise ConfigError(f"candidate.precisions names {min(twice)!r} under two precisions.")
        seen |= set(names)
        chosen |= dict.fromkeys(names, str(precision))
    return Candidate.of(chosen)


def _listed(given: Any) -> Sequence[Any]:
    """Return a list of names, also where there is but one and no brackets."""
    return [given] if isinstance(given, str) or not isinstance(given, Sequence) else given


def _top(count: Any, context: Context) -> Candidate:
    known = context.subject.layer_names
    if not isinstance(count, int) or not 0 <= count <= len(known):
        raise ConfigError(
            f"candidate.top={count} has to be a whole number from 0 to {len(known)}, "
            "the number of quantizable layers."
        )
    ranking = rank_layers(context.parts, context.subject, context.workspace)
    units = {each.layer.unit for each in ranking[:count]}
    # Those that run as one with them have to follow.
    return Candidate.excluding(
        known, [layer.name for layer in context.subject.layers if layer.unit in units]
    )


def _rebuilt(run: str, context: Context) -> Candidate:
    found = context.tracker.trial(run).candidate
    where = f"candidate.from_run={run}"
    names, known = [name for name, _ in found.precisions], context.subject.layer_names
    if sorted(names) != sorted(known):
        different = set(names) ^ set(known)
        raise ConfigError(
            f"{where} is a candidate of another model or quantization: {len(different)} layers "
            f"differ, {min(different)!r} among them. Give the model=, quantization= and other "
            "options of its study as well."
        )
    return found


def _save(candidate: Candidate, context: Context) -> Path:
    subject = context.subject
    model = context.parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    folder = Path(HydraConfig.get().runtime.output_dir)
    name = f"{context.parts.source.name}-{context.parts.quantizer.name}-{candidate.key[:8]}.onnx"
    save_model(model, folder / name)
    return folder / name
