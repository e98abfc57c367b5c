"""A study from config, and what a person sees of it."""

import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import rich
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seqto import __version__
from seqto.cli.build import GROUPS, build_context, build_settings
from seqto.cli.candidate import CHOICES
from seqto.cli.fetch import fetch_model
from seqto.cli.pointers import print_lines, where_to_look
from seqto.errors import ConfigError, ConstraintError
from seqto.report.note import study_note
from seqto.report.terminal import StudyProgress, in_words, print_front, print_schemes
from seqto.study import Launch, Outcome, Study
from seqto.types import Front, StudyRecord
from seqto.workers import Workers, usable_cores


def run_study(config: DictConfig, launch: Launch | None, folder: Path) -> None:
    """Run the study that this config describes, and print its answer.

    Without a launcher its candidates are measured by processes of this machine.
    """
    console = rich.get_console()
    _refuse_candidate(config)
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
            return write_files(folder, record, front, _environment(study))

        outcome = study.run(launch or workers.launch, progress.advance, publish, _yaml(config))
    _conclude(console, study, outcome, folder)
    _answer(console, study, outcome)


def write_files(
    folder: Path, record: StudyRecord, front: Front, environment: Mapping[str, str]
) -> list[Path]:
    """Write the pictures and report.json of a study, and return their paths."""
    # matplotlib takes half a second to import, and only the final step needs it.
    from seqto.report import document, info, plots

    names = ("sensitivity.png", "objectives.png", "front.png", "report.json")
    sensitivity, objectives, picture, report = (folder / name for name in names)
    plots.draw_sensitivity(info.sensitivity_info(record), sensitivity)
    plots.draw_objectives(info.objectives_info(record, front), objectives)
    plots.draw_front(info.front_info(record, front), picture)
    document.write_report(report, record, front, environment)
    return [sensitivity, objectives, picture, report]


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
    lines = {"picture": str(folder / "front.png")}
    if study.settings.register_models:
        aliases = ", ".join(f"@{each.alias}" for each in outcome.front.recommended)
        lines["models"] = f"models:/{study.name} {aliases}"
    print_lines(console, {**lines, **where_to_look(study.tracker, outcome.record.id)})


def _answer(console: Console, study: Study, outcome: Outcome) -> None:
    """Say which candidate meets the constraint, or that none does and what comes nearest."""
    constraint, trials = study.settings.constraint, outcome.record.trials
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in constraint.limits().items())
    if not limits:
        return
    best = constraint.best(trials)
    trial = best or constraint.nearest(trials)
    offer = in_words(trial.metrics, outcome.record.baseline, study.parts.metric.name)
    if best is None:
        raise ConstraintError(
            f"no candidate has {limits}; the nearest is #{trial.index} (run {trial.id}): {offer}."
        )
    print_lines(console, {"answer": f"#{trial.index} has {limits}: {offer}", "run": trial.id})


def _refuse_candidate(config: DictConfig) -> None:
    for name in (*CHOICES, "scheme"):
        if config.candidate[name] is not None:
            raise ConfigError(
                f"candidate.{name} chooses one candidate, but -m runs a study of many. "
                "Leave out one of the two."
            )


def _yaml(config: DictConfig) -> str:
    names = (*GROUPS, "precisions", "constraint", "objectives", "study", "tracking")
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
