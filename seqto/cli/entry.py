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
    """Why a study's job could not even record failed trials; errors may not be picklable."""

    reason: str


def job(config: DictConfig) -> list[str] | JobFailure | None:
    """Run candidates of a study if its run is given, otherwise a single candidate."""
    from seqto.cli.candidate_command import run_single, run_study_job

    # Hydra would add its own lines to whatever is raised in here.
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
    """End the command of one candidate; remove its folder if only Hydra wrote to it."""
    # A StudyError means that a trial ran and failed: keep its log.
    if not isinstance(error, StudyError):
        hydra_config = HydraConfig.get()
        names = [f"{hydra_config.job.name}.log", str(hydra_config.output_subdir)]
        discard(Path(hydra_config.runtime.output_dir), names)
    end_with(error)


def entry() -> None:
    """Compose the config from the command line, then run a job, or the sweeper with -m."""
    register_sweeper()
    # Not as a decorator: launchers pickle `job` by reference, so the name must be the plain job.
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(job)()
