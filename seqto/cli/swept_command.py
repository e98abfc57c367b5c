"""Jobs of other sweepers than seqto's: what each runs, and what it returns to be optimised."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqto.cli.candidate_command import CHOICES, run_single
from seqto.config.complaints import complain
from seqto.errors import ConstraintError

_OWN = "seqto"
"""The choice of hydra/sweeper that makes studies."""


def is_swept() -> bool:
    """Return whether this job belongs to another sweeper, such as basic or optuna."""
    hydra_config = HydraConfig.get()
    return hydra_config.mode == RunMode.MULTIRUN and _sweeper() != _OWN


def run_swept(config: DictConfig) -> tuple[float, ...]:
    """Measure the candidate that is chosen, or else run a whole study; return its objectives.

    A study's are those of the candidate that it recommends first.
    """
    alone = any(config.candidate[name] is not None for name in CHOICES)
    if HydraConfig.get().job.num == 0:
        print(_notice(alone), flush=True)
    metrics = run_single(config).metrics if alone else _recommended(config)
    return objectives_of(metrics, config.objectives)


def objectives_of(metrics: Mapping[str, float], names: Sequence[str]) -> tuple[float, ...]:
    """Return the objectives, all to be minimised, in the order of the config."""
    return tuple(float(metrics[name]) for name in names)


def _recommended(config: DictConfig) -> Mapping[str, float]:
    """Run a study, and return the metrics of the candidate that it recommends first."""
    from seqto.cli.study_command import run_and_show, tell_answer

    hydra_config = HydraConfig.get()
    folder, words = Path(hydra_config.runtime.output_dir), list(hydra_config.overrides.task)
    finished = run_and_show(config, None, folder, words)
    try:
        tell_answer(finished)
    except ConstraintError as error:
        # The sweeper is to learn how far this is from the limits, and go on.
        print(f"seqto: {complain(error)}", file=sys.stderr)
    return finished.outcome.front.recommended[0].trial.metrics


def _sweeper() -> str:
    return str(HydraConfig.get().runtime.choices["hydra/sweeper"])


def _notice(alone: bool) -> str:
    if alone:
        does = "measures one candidate by itself: a run without a study and a front"
    else:
        does = "is a study by itself"
    return (
        f"hydra/sweeper={_sweeper()}: each of its jobs {does}, and returns its objectives. "
        "Without hydra/sweeper=, -m makes studies and compares them."
    )
