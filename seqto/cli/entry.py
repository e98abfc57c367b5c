"""Hydra's entry point and the function that each of its jobs calls."""

import sys
from dataclasses import dataclass

import hydra
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from seqto.cli.complaints import complain, end_with
from seqto.cli.paths import CONF, PLUGINS
from seqto.cli.shapes import check_shapes
from seqto.errors import ConfigError


@dataclass(frozen=True)
class JobFailure:
    """Why a study's job could not even record failed trials, in words: errors may not pickle."""

    reason: str


def job(config: DictConfig) -> list[str] | JobFailure | None:
    """Run candidates of a study if its run is given, else one on its own."""
    from seqto.cli.candidate import run_single, run_study_job

    # Whatever is raised in here, Hydra adds lines of its own to.
    try:
        check_shapes(config)
    except ConfigError as error:
        end_with(error)
    try:
        if config.study.run:
            return run_study_job(config)
        run_single(config)
        return None
    except Exception as error:
        if config.study.run:
            return JobFailure(complain(error))
        end_with(error)


def entry() -> None:
    """Compose the config from the command line, then run a job, or with -m the sweeper."""
    register_sweeper()
    # Not as a decorator: launchers pickle `job` by reference, so that name has to be the job.
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(job)()


def register_sweeper() -> None:
    """Make the sweeper known to Hydra, which finds it by itself only in a wheel."""
    try:
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    except ModuleNotFoundError:
        sys.path.append(str(PLUGINS))
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    Plugins.instance().register(SeqtoSweeper)
