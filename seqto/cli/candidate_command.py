"""Candidates from a config: as a study's job, or a single one."""

from dataclasses import replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seqto.api.alone import measure_alone
from seqto.cli.pointers import print_lines, stdout_console, where_to_look
from seqto.config.build import (
    Context,
    build_context,
    build_settings,
    context_of_job,
)
from seqto.config.needs import check_needs
from seqto.errors import ConfigError
from seqto.graph.files import save_model
from seqto.graph.unpacking import unpacked
from seqto.measuring.choice import checked, excluding, mixed, most_sensitive, same_as
from seqto.measuring.pool import Pool
from seqto.measuring.record import Assignment
from seqto.types import Candidate, Trial

CHOICES = ("excluded", "precisions", "top", "from_run")
"""The config keys that choose a candidate."""


def run_study_job(config: DictConfig) -> list[str]:
    """Measure the candidates that a study assigned to this job; return their trials' ids."""
    context = context_of_job(config)
    assignments = [
        Assignment(each.index, replace(mixed(each.precisions, context.subject), scheme=each.scheme))
        for each in config.study.assignments
    ]
    pool = Pool(context.parts, context.subject, context.tracker)
    return list(pool.launch(config.study.run, assignments))


def run_single(config: DictConfig) -> Trial:
    """Measure one candidate, save its model, print where, and return its trial."""
    from seqto.report.wording import in_words

    # Report wrong values before anything is fetched, also those that only a study uses.
    build_settings(config, 1)
    unpacks = wants_unpacked(config)
    check_needs(config)
    context = build_context(config)
    candidate = chosen_candidate(config, context)
    trial = measure_alone(context, candidate)
    saved = _save(candidate, context, unpacks)
    console = stdout_console()
    offer = in_words(trial.metrics, context.subject.baseline, context.subject.metric.name)
    console.print(f"{candidate.in_words()}: {offer}", highlight=False)
    print_lines(console, {**where_to_look(context.tracker, trial.id), **saved})
    return trial


def wants_unpacked(config: DictConfig) -> bool:
    """Return whether the candidate is to be saved with unpacked weights, too."""
    given = config.candidate.unpack
    if not isinstance(given, bool):
        raise ConfigError(f"candidate.unpack={given} has to be true or false.")
    return given


def chosen_candidate(config: DictConfig, context: Context) -> Candidate:
    """Return the candidate that `candidate.*` chooses; by default it is fully quantized."""
    chosen = _chosen(config.candidate, context)
    return checked(chosen, config.candidate.scheme, context.parts, context.subject)


def _chosen(choice: DictConfig, context: Context) -> Candidate:
    given = [name for name in CHOICES if choice[name] is not None]
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(f'candidate.{name}' for name in given)} exclude each other: give one."
        )
    if choice.from_run is not None:
        return same_as(context.tracker.trial(choice.from_run), context.subject)
    if choice.top is not None:
        return most_sensitive(choice.top, context.parts, context.subject, context.workspace)
    if choice.precisions is not None:
        return mixed(choice.precisions, context.subject)
    return excluding([] if choice.excluded is None else choice.excluded, context.subject)


def _save(candidate: Candidate, context: Context, unpacks: bool) -> dict[str, str]:
    """Save the candidate's model, if wanted also unpacked, and return what to print of it."""
    subject = context.subject
    model = context.parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    folder = Path(HydraConfig.get().runtime.output_dir)
    name = f"{context.parts.source.name}-{context.parts.quantizer.name}-{candidate.key[:8]}"
    lines = {}
    if unpacks:
        path = folder / f"{name}-unpacked.onnx"
        save_model(unpacked(model), path)
        lines["unpacked"] = str(path)
    save_model(model, folder / f"{name}.onnx")
    return {**lines, "model": str(folder / f"{name}.onnx")}
