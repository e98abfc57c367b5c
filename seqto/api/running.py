"""A study from a config, for both the command line and `seqto.tune`."""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from omegaconf import DictConfig, OmegaConf

from seqto import __version__
from seqto.config.build import (
    Given,
    build_context,
    build_parts,
    build_settings,
)
from seqto.config.needs import check_needs
from seqto.identity import settings
from seqto.measuring.batch import shares_prefixes
from seqto.measuring.cluster import Cluster, Options
from seqto.measuring.parts import GROUPS, READ
from seqto.measuring.pool import Pool, workers_of
from seqto.measuring.record import Assignment
from seqto.packages import installed_version
from seqto.phases import listening
from seqto.protocols import Fetched
from seqto.report.note import study_note
from seqto.report.page_links import links_of
from seqto.report.writing import write_files, write_picture
from seqto.secrets import masked_values
from seqto.study.conclude import save_recommended
from seqto.study.device_limits import DOCUMENT
from seqto.study.explore import OPENING, STEPS_TO_OPEN, Launch
from seqto.study.plan import Study
from seqto.study.run import Outcome, run_study
from seqto.types import Front, StudyRecord, Trial

JobLaunch = Callable[[str, Sequence[Sequence[Assignment]]], Sequence[str]]
"""Measures assignments of a study, one job per group, and returns the ids of their trials."""

STARTING = "starting"
_STEPS = 3
"""What it takes to start: the parts, a look at what they need, and the tracker."""

_JOB_SECONDS = 1.3
"""How long a job should take, so that Hydra's 130 ms per job add only a tenth."""

_JOB_SIZE = 8
"""The most candidates per job, because a launcher has several processes to keep busy."""


class Display(Protocol):
    """What a study shows while it runs."""

    def start(self) -> None:
        """Show what is done from now on."""
        ...

    def aside(self) -> AbstractContextManager[Any]:
        """Return a context within which another part may show something of its own."""
        ...

    def introduce(self, study: Study) -> None:
        """Describe the study; called before its first candidate."""
        ...

    def say(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Show what is being done now, how much of it is done, and of how much, if known."""
        ...

    def advance(self, trial: Trial, done: int, total: int) -> None:
        """Show a finished trial; the arguments are those of `seqto.study.explore.Watch`."""
        ...


@dataclass(frozen=True)
class Finished:
    """A finished study, with everything that was prepared for it."""

    study: Study
    outcome: Outcome
    environment: Mapping[str, str]
    files: tuple[Path, ...] = ()
    """The recommended models that were saved, the answer first."""


def run_config(
    config: DictConfig,
    display: Display,
    folder: Path | None,
    *,
    given: Given | None = None,
    launch: JobLaunch | None = None,
    cluster: Options | None = None,
    overrides: Sequence[str] | None = None,
    command: str = "",
    save_models: bool = False,
) -> Finished:
    """Run the study that this config describes, with the objects in `given` instead of names.

    Without a launcher, processes on this machine measure the candidates, or if `cluster` has
    arguments for `ray.remote`, the ray cluster that this process is connected to. The study's files
    are written into the folder, if one is given; with `save_models` the recommended models, too.
    """
    # Report wrong values before anything is fetched, and before MLflow is imported.
    build_settings(config, 1)
    display.say(STARTING, 0, _STEPS)
    display.start()
    parts = build_parts(config, given)
    display.say(STARTING, 1, _STEPS)
    # A download shows its own progress bar.
    with display.aside() if isinstance(parts.source, Fetched) else nullcontext():
        check_needs(config, given)
    display.say(STARTING, 2, _STEPS)
    with listening(display.say):
        context = build_context(config, given)
    parts, subject, tracker = context.parts, context.subject, context.tracker
    pool = Pool(parts, subject, tracker, workers_of(parts))
    spread = launch is not None or cluster is not None
    batch = len(subject.layers) + 1 if spread else pool.batch
    workspace, chosen = context.workspace, build_settings(config, batch)
    study = Study(parts, subject, chosen, tracker, workspace, command, pool.models)
    display.say(OPENING, 0, STEPS_TO_OPEN)
    display.introduce(study)
    environment = _environment(study)
    files: list[Path] = []

    def publish(record: StudyRecord, front: Front) -> Sequence[Path]:
        if folder is None:
            return []
        tracker.log_note(record.id, study_note(record, front, tracker.pages(record.id, front)))
        exclusions = tracker.read_document(record.id, DOCUMENT)
        links = links_of(tracker, record.id, front, save_models)
        if save_models:
            files.extend(save_recommended(study, front, folder))
        return write_files(folder, record, front, environment, exclusions, links)

    def show(record: StudyRecord, front: Front) -> Sequence[Path]:
        pages = tracker.pages(record.id, front)
        tracker.log_note(record.id, study_note(record, front, pages, running=True))
        return [] if folder is None else [write_picture(folder, record, front)]

    with listening(display.say), pool:
        measure: Launch = pool.launch
        if cluster is not None:
            measure = _cluster(study, cluster).launch
        elif launch:
            measure = _in_jobs(launch, study)
        outcome = run_study(
            study,
            measure,
            display.advance,
            publish,
            _yaml(config, given),
            overrides,
            show=show,
        )
    return Finished(study, outcome, environment, tuple(files))


def _cluster(study: Study, remote: Options) -> Cluster:
    settings = study.settings
    return Cluster(
        study.parts, study.subject, study.tracker, settings.attempts, remote, settings.times
    )


def _in_jobs(launch: JobLaunch, study: Study) -> Launch:
    """Return a launch that gives each job several candidates if they are fast."""

    def measure(run: str, assignments: Sequence[Assignment]) -> Sequence[str]:
        size = 1
        # Candidates that are compiled, or run in separate processes, are never that fast.
        if shares_prefixes(study.parts.device):
            latency = study.tracker.read_study(run).baseline["latency_ms"] / 1000
            seconds = latency * len(study.subject.samples)
            size = min(math.ceil(_JOB_SECONDS / seconds), _JOB_SIZE)
        return launch(run, [assignments[at : at + size] for at in range(0, len(assignments), size)])

    return measure


def _yaml(config: DictConfig, given: Given | None) -> str:
    """Return the config for the record: with the settings of given objects, without secrets."""
    limits, ending = ("constraint", "gate"), ("objectives", "recommend", "study")
    names = (*GROUPS, "precisions", *limits, *ending, "tracking")
    objects = {
        group: {**settings(part), **{name: config[group][name] for name in READ.get(group, ())}}
        for group, part in (given or {}).items()
        if group in GROUPS
    }
    wanted = {name: objects.get(name, config[name]) for name in names}
    plain = OmegaConf.to_container(OmegaConf.create(wanted), resolve=False)
    return OmegaConf.to_yaml(OmegaConf.create(masked_values(plain)), resolve=False)


def _environment(study: Study) -> dict[str, str]:
    packages = ("onnx", "onnxruntime", "mlflow", "hydra-core", "numpy")
    return {
        "seqto": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: installed_version(name) for name in packages},
        **{f"device.{name}": fact for name, fact in study.parts.device.describe().items()},
    }
