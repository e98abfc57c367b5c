"""Hydra's entry point and the function that each of its jobs calls."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seqto.cli.ending import end_with
from seqto.cli.hydra_files import folder_name, write_hydra_files
from seqto.cli.leftovers import discard
from seqto.config.complaints import complain
from seqto.config.compose import register_sweeper, remember_secrets_of
from seqto.config.paths import CONF
from seqto.config.shapes import check_shapes
from seqto.errors import ConfigError, StudyError


@dataclass(frozen=True)
class JobFailure:
    """Why a study's job could not even record failed trials; errors may not be picklable."""

    reason: str


def job(config: DictConfig) -> list[str] | JobFailure | tuple[float, ...]:
    """Run candidates of a study if its run is given, otherwise a single candidate.

    A job of another sweeper than seqto's is a candidate or a study; it returns its objectives.
    """
    from seqto.cli.candidate_command import run_single, run_study_job
    from seqto.cli.swept_command import is_swept, objectives_of, run_swept

    remember_secrets_of(config)
    write_hydra_files(config)
    if not config.study.run and is_swept():
        # Errors are for the sweeper: it may count failed jobs and go on.
        check_shapes(config)
        return run_swept(config)
    # Hydra would add its own lines to whatever is raised in here.
    try:
        check_shapes(config)
    except ConfigError as error:
        _end(error)
    try:
        if config.study.run:
            return run_study_job(config)
        return objectives_of(run_single(config).metrics, config.objectives)
    except Exception as error:
        if config.study.run:
            return JobFailure(complain(error))
        _end(error)


def _end(error: Exception) -> NoReturn:
    """End the command of one candidate; remove its folder if only Hydra wrote to it."""
    # A StudyError means that a trial ran and failed: keep its log.
    if not isinstance(error, StudyError):
        hydra_config = HydraConfig.get()
        names = [f"{hydra_config.job.name}.log", folder_name()]
        discard(Path(hydra_config.runtime.output_dir), names)
    end_with(error)


def entry() -> None:
    """Compose the config from the command line, then run a job, or the sweeper with -m."""
    register_sweeper()
    # The plugin's own config of this name is meant to be replaced.
    warnings.filterwarnings("ignore", r"\s*'hydra/launcher/ray' is validated against ConfigStore")
    # Not as a decorator: launchers pickle `job` by reference, so the name must be the plain job.
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(job)()
