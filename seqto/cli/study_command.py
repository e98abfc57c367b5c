"""A study from the command line, and its output in the terminal."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from seqto.api.running import Finished, JobLaunch, run_config
from seqto.cli.candidate_command import CHOICES, wants_unpacked
from seqto.cli.pointers import print_lines, stdout_console, where_to_look
from seqto.config.shapes import check_shapes
from seqto.errors import ConfigError, ConstraintError, StudyError
from seqto.measuring.cluster import Options
from seqto.measuring.subject import Subject
from seqto.pareto.lost import lost_in_words
from seqto.report.progress import StepLines, StudyProgress, can_show_bars
from seqto.report.terminal import print_front, print_schemes
from seqto.report.wording import in_words, task_in_words
from seqto.report.writing import PAGE, PICTURE
from seqto.secrets import MASK, masked_word
from seqto.study.plan import Study
from seqto.types import StudyRecord, Trial


def run_study_of(
    config: DictConfig,
    launch: JobLaunch | None,
    folder: Path,
    overrides: Sequence[str],
    cluster: Options | None = None,
) -> None:
    """Run the study of this config, which these overrides gave, and print its answer.

    Without a launcher, processes on this machine measure its candidates, or the ray cluster.
    """
    tell_answer(run_and_show(config, launch, folder, overrides, cluster))


def run_and_show(
    config: DictConfig,
    launch: JobLaunch | None,
    folder: Path,
    overrides: Sequence[str],
    cluster: Options | None = None,
) -> Finished:
    """Run the study of this config, and print its front; the arguments are as above."""
    console = stdout_console()
    check_shapes(config)
    _refuse_candidate(config)
    with ExitStack() as stack:
        finished = run_config(
            config,
            _Terminal(console, stack),
            folder,
            launch=launch,
            cluster=cluster,
            overrides=overrides,
            command=command_line(),
            save_models=True,
        )
    _conclude(console, finished, folder)
    return finished


class _Terminal:
    """What a person sees in the terminal while a study runs."""

    def __init__(self, console: Console, stack: ExitStack) -> None:
        self._console, self._stack = console, stack
        bars = can_show_bars(console)
        self._progress = StudyProgress(console) if bars else StepLines(console)
        self.say, self.advance = self._progress.say, self._progress.advance
        self.aside = self._progress.aside

    def start(self) -> None:
        self._stack.enter_context(self._progress)

    def introduce(self, study: Study) -> None:
        self._progress.ended.objectives = study.settings.objectives
        parts, subject, facts = study.parts, study.subject, study.parts.device.describe()
        layers = "1 layer" if len(subject.layers) == 1 else f"{len(subject.layers)} layers"
        self._console.print(
            f"[bold]{parts.source.name}[/] on [bold]{parts.device.name}[/], "
            f"{parts.quantizer.name} quantization, {parts.search.name} search: "
            f"{layers}, {len(subject.samples)} samples to evaluate on",
            highlight=False,
        )
        for line in (_meaning(subject), *subject.remarks):
            self._console.print(f"[dim]{escape(line)}[/]", highlight=False)
        kernels = facts.get("kernels", "default")
        timed = f", latency of {facts['cpu']}" if "cpu" in facts else ""
        line = escape(f"{facts['runtime']}, kernels: {kernels}{timed}")
        self._console.print(f"[dim]{line}[/]", highlight=False)


def _meaning(subject: Subject) -> str:
    return task_in_words(subject.task.name, subject.metric.name, subject.guess)


def command_line() -> str:
    """Return the command of this process as it can be typed again, without passwords."""
    program, *words = sys.argv
    name = Path(program).name
    command = "python -m seqto" if name == "__main__.py" else name
    # MLflow stores it, and shows it to all its users.
    return " ".join([command, *(_quoted(masked_word(each)) for each in words)])


def _quoted(word: str) -> str:
    """Return a word with the quotes that a shell needs; a mask needs none, as nobody types it."""
    plain = word.replace(MASK, "")
    return word if shlex.quote(plain) == plain else shlex.quote(word)


def _conclude(console: Console, finished: Finished, folder: Path) -> None:
    study, outcome = finished.study, finished.outcome
    total = len(outcome.record.trials)
    if outcome.measured < total:
        known = total - outcome.measured
        console.print(f"{known} of {total} candidates were measured before and not run again.")
    print_schemes(console, outcome.record)
    print_front(console, outcome.record, outcome.front)
    # The first is the answer to the constraint, if there is one, else the balanced model.
    lines = {"file": str(finished.files[0])} if finished.files else {}
    lines |= {"report": str(folder / PAGE), "picture": str(folder / PICTURE)}
    if study.registers(outcome.record):
        aliases = ", ".join(f"@{each.alias}" for each in outcome.front.recommended)
        lines["models"] = f"models:/{study.name} {aliases}"
    print_lines(console, {**lines, **where_to_look(study.tracker, outcome.record.id)})


def tell_answer(finished: Finished) -> None:
    """Print which candidate meets the constraint and the gate; raise if none does."""
    console = stdout_console()
    study, outcome = finished.study, finished.outcome
    settings = study.settings
    questions: list[tuple[str, str, Any, Sequence[Trial]]] = [
        ("answer", "candidate", settings.constraint, outcome.record.trials),
        ("gate", "member of the front", settings.gate, outcome.front.members),
    ]
    if study.incomplete(outcome.record):
        raise StudyError(_without_answer(outcome.record))
    unmet = []
    for label, kind, limits, trials in questions:
        if not limits.limits():
            continue
        best = limits.best(trials)
        trial = best or limits.nearest(trials)
        offer = in_words(trial.metrics, outcome.record.baseline, study.subject.metric.name)
        if best is None:
            unmet.append(
                f"no {kind} has {limits}; the nearest is #{trial.index} (run {trial.id}): {offer}."
            )
        else:
            answer = f"#{trial.index} has {limits}: {offer}"
            print_lines(console, {label: answer, "run": trial.id})
    if unmet:
        raise ConstraintError(" ".join(unmet))


def _without_answer(record: StudyRecord) -> str:
    return (
        f"{lost_in_words(record.trials)}. Until then nothing is registered and no alias moves: "
        "with them the answer might be another one. study.max_failed=0.2 would do with four fifths."
    )


def _refuse_candidate(config: DictConfig) -> None:
    for name in (*CHOICES, "scheme"):
        if config.candidate[name] is not None:
            raise ConfigError(
                f"candidate.{name} chooses one candidate, but -m runs a study of many. "
                "Leave out one of the two."
            )
    if wants_unpacked(config):
        raise ConfigError(
            "candidate.unpack saves one candidate, but -m runs a study of many. Leave out one of "
            "the two; candidate.from_run=<run id> chooses one that a study found."
        )
