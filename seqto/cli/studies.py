"""A study from config, and what a person sees of it."""

import math
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seqto import __version__
from seqto.cli.build import GROUPS, build_context, build_settings
from seqto.cli.candidate import CHOICES
from seqto.cli.contact import contact_tracker
from seqto.cli.fetch import fetch_model
from seqto.cli.pointers import print_lines, stdout_console, where_to_look
from seqto.cli.shapes import check_shapes
from seqto.errors import ConfigError, ConstraintError
from seqto.exclusions import DOCUMENT
from seqto.report.note import study_note
from seqto.report.terminal import StudyProgress, in_words, print_front, print_schemes
from seqto.study import Assignment, Launch, Outcome, Study
from seqto.types import Front, StudyRecord
from seqto.workers import Workers, usable_cores

JobLaunch = Callable[[str, Sequence[Sequence[Assignment]]], Sequence[str]]
"""Measures assignments of a study, a job a group, and returns the ids of their trials."""

_JOB_SECONDS = 1.3
"""What a job should last, so that Hydra's 130 ms for it are a tenth."""

_JOB_SIZE = 8
"""Candidates that a job gets at the most: a launcher has several processes to keep busy."""


def run_study(
    config: DictConfig, launch: JobLaunch | None, folder: Path, overrides: Sequence[str]
) -> None:
    """Run the study that this config, made by these overrides, describes; print its answer.

    Without a launcher its candidates are measured by processes of this machine.
    """
    console = stdout_console()
    check_shapes(config)
    _refuse_candidate(config)
    # Wrong values are told before anything is fetched.
    build_settings(config, 1)
    contact_tracker(config)
    # Not within the status line: a download has a progress bar of its own.
    fetch_model(config)
    with console.status("Preparing model, samples and ranges ..."):
        context = build_context(config)
    parts, subject, tracker = context.parts, context.subject, context.tracker
    count = getattr(parts.device, "workers", 1) or usable_cores()
    workers = Workers(parts, subject, tracker, count)
    settings = build_settings(config, len(subject.layers) + 1 if launch else workers.batch)
    study = Study(parts, subject, settings, tracker, context.workspace, command_line())
    _introduce(console, study)

    with StudyProgress(console) as progress, workers:

        def publish(record: StudyRecord, front: Front) -> Sequence[Path]:
            progress.say("drawing, storing models")
            note = study_note(record, front, tracker.pages(record.id, front))
            tracker.log_note(record.id, note)
            exclusions = tracker.read_document(record.id, DOCUMENT)
            return write_files(folder, record, front, _environment(study), exclusions)

        measure = _in_jobs(launch, study) if launch else workers.launch
        outcome = study.run(measure, progress.advance, publish, _yaml(config), overrides)
    _conclude(console, study, outcome, folder)
    _answer(console, study, outcome)


def _in_jobs(launch: JobLaunch, study: Study) -> Launch:
    """Return a launch that gives a job several candidates where each takes but a moment."""

    def measure(run: str, assignments: Sequence[Assignment]) -> Sequence[str]:
        size = 1
        # Where candidates are compiled, or run in processes of their own, none is that fast.
        if getattr(study.parts.device, "shares_prefixes", False):
            latency = study.tracker.read_study(run).baseline["latency_ms"] / 1000
            seconds = latency * len(study.subject.samples)
            size = min(math.ceil(_JOB_SECONDS / seconds), _JOB_SIZE)
        return launch(run, [assignments[at : at + size] for at in range(0, len(assignments), size)])

    return measure


def write_files(
    folder: Path,
    record: StudyRecord,
    front: Front,
    environment: Mapping[str, str],
    exclusions: Mapping[str, Any] | None,
) -> list[Path]:
    """Write the pictures, report.json and report.html of a study, and return their paths."""
    # matplotlib takes half a second to import, and only the final step needs it.
    from seqto.report import document, info, plots, study_page

    names = ("sensitivity.png", "objectives.png", "front.png", "report.json", "report.html")
    sensitivity, objectives, picture, report, page = (folder / name for name in names)
    plots.draw_sensitivity(info.sensitivity_info(record), sensitivity)
    plots.draw_objectives(info.objectives_info(record, front), objectives)
    plots.draw_front(info.front_info(record, front), picture)
    document.write_report(report, record, front, environment)
    pictures = {each.name: each for each in (sensitivity, objectives)}
    study_page.write_study_page(page, record, front, environment, pictures, exclusions)
    return [sensitivity, objectives, picture, report, page]


def command_line() -> str:
    """Return the command of this process as it can be typed again, without passwords."""
    program, *words = sys.argv
    name = Path(program).name
    command = "python -m seqto" if name == "__main__.py" else name
    # MLflow keeps it, and shows it to whoever may look.
    return re.sub(r"(://)[^/@\s]+@", r"\1***@", f"{command} {shlex.join(words)}")


def _introduce(console: Console, study: Study) -> None:
    parts, subject, facts = study.parts, study.subject, study.parts.device.describe()
    console.print(
        f"[bold]{parts.source.name}[/] on [bold]{parts.device.name}[/], "
        f"{parts.quantizer.name} quantization, {parts.search.name} search: "
        f"{len(subject.layers)} layers, {len(subject.samples)} samples to evaluate on",
        highlight=False,
    )
    console.print(
        f"[dim]{facts['runtime']}, kernels: {facts.get('kernels', 'default')}[/]", highlight=False
    )


def _conclude(console: Console, study: Study, outcome: Outcome, folder: Path) -> None:
    total = len(outcome.record.trials)
    if outcome.measured < total:
        known = total - outcome.measured
        console.print(f"{known} of {total} candidates were measured before and not run again.")
    print_schemes(console, outcome.record)
    print_front(console, outcome.record, outcome.front)
    lines = {"report": str(folder / "report.html"), "picture": str(folder / "front.png")}
    if study.registers(outcome.record):
        aliases = ", ".join(f"@{each.alias}" for each in outcome.front.recommended)
        lines["models"] = f"models:/{study.name} {aliases}"
    print_lines(console, {**lines, **where_to_look(study.tracker, outcome.record.id)})


def _answer(console: Console, study: Study, outcome: Outcome) -> None:
    """Say which candidate meets the constraint and the gate; raise where none does."""
    settings = study.settings
    questions = [
        ("answer", "candidate", settings.constraint, outcome.record.trials),
        ("gate", "member of the front", settings.gate, outcome.front.members),
    ]
    unmet = []
    for label, kind, limits, trials in questions:
        if not limits.limits():
            continue
        best = limits.best(trials)
        trial = best or limits.nearest(trials)
        offer = in_words(trial.metrics, outcome.record.baseline, study.parts.metric.name)
        if best is None:
            unmet.append(
                f"no {kind} has {limits}; the nearest is #{trial.index} (run {trial.id}): {offer}."
            )
        else:
            answer = f"#{trial.index} has {limits}: {offer}"
            print_lines(console, {label: answer, "run": trial.id})
    if unmet:
        raise ConstraintError(" ".join(unmet))


def _refuse_candidate(config: DictConfig) -> None:
    for name in (*CHOICES, "scheme"):
        if config.candidate[name] is not None:
            raise ConfigError(
                f"candidate.{name} chooses one candidate, but -m runs a study of many. "
                "Leave out one of the two."
            )


def _yaml(config: DictConfig) -> str:
    names = (*GROUPS, "precisions", "constraint", "gate", "objectives", "study", "tracking")
    wanted = {name: config[name] for name in names}
    return OmegaConf.to_yaml(OmegaConf.create(wanted), resolve=False)


def _environment(study: Study) -> dict[str, str]:
    packages = ("onnx", "onnxruntime", "mlflow", "hydra-core", "numpy")
    return {
        "seqto": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version(name) for name in packages},
        **{f"device.{name}": fact for name, fact in study.parts.device.describe().items()},
    }
