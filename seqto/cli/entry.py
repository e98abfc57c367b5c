"""Hydra's entry point and the function that each of its jobs calls."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seqto.cli.ending import end_with
from seqto.cli.leftovers import discard
from seqto.config.complaints import complain
from seqto.config.compose import register_sweeper
from seqto.config.paths import CONF
from seqto.config.shapes import check_shapes
from seqto.errors import ConfigError, StudyError


@dataclass(frozen=True)
class JobFailure:
    """Why a study's job could not even record failed trials, in words: errors may not pickle."""

    reason: str


def job(config: DictConfig) -> list[str] | JobFailure | None:
    """Run candidates of a study if its run is given, else one on its own."""
    from seqto.cli.candidate_command import run_single, run_study_job

    # Whatever is raised in here, Hydra adds lines of its own to.
    try:
        check_shapes(config)
    except ConfigError as error:
        _end(error)
    try:
        if config.study.run:
            return run_study_job(config)
        run_single(config)
        return None
    except Exception as error:
        if config.study.run:
            return JobFailure(complain(error))
        _end(error)


def _end(error: Exception) -> NoReturn:
    """End the command of one candidate, and leave no folder that only Hydra wrote to."""
    # Of a candidate that was begun and failed, MLflow has a run: its log may tell more.
    if not isinstance(error, StudyError):
        hydra_config = HydraConfig.get()
        names = [f"{hydra_config.job.name}.log", str(hydra_config.output_subdir)]
        discard(Path(hydra_config.runtime.output_dir), names)
    end_with(error)


def entry() -> None:
    """Compose the config from the command line, then run a job, or with -m the sweeper."""
    register_sweeper()
    # Not as a decorator: launchers pickle `job` by reference, so that name has to be the job.
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(job)()
