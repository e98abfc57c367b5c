"""The place of ray among Hydra's launchers: `hydra/launcher=ray`.

A study gives its candidates to ray itself (`seqto/measuring/cluster.py`): no job of Hydra, which
would need the files, the folder and the environment of this machine.
"""

from collections.abc import Sequence

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seqto.errors import ConfigError


class SeqtoRayLauncher(Launcher):
    """Holds the settings of ray for seqto's sweeper."""

    def __init__(self, ray: DictConfig) -> None:
        self.ray = ray

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Do nothing: the sweeper does."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Refuse the jobs of other sweepers."""
        raise ConfigError(
            "hydra/launcher=ray spreads the candidates of studies, and hydra/sweeper= makes other "
            "jobs: leave out one of both, or take hydra/launcher=joblib."
        )
